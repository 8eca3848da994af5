package partition

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
)

// heap is what is alive, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) // #nosec G115 -- far below
}

// Partitions and idempotency keys come and go; 20,000 of each are there at once.
// Not parallel: it measures the heap, which other tests use too.
func TestTheEmbeddedStoreDropsUnusedNames(t *testing.T) {
	const partitions, atOnce, stay = 60_000, 20_000, 100
	server, _, err := startEmbedded()
	if err != nil {
		t.Fatal(err)
	}
	db, keys := server.DB(0), newShardKeys("sw", "default", "0")
	name := func(i int) string { return fmt.Sprint("partition-", i) }
	seen := func(i int) string { return keys.produceResult(name(i), "0123456789abcdef0123456789abcdef") }
	begin := func(i int) {
		_, _ = db.Push(keys.list(name(i)), "x")
		db.HSet(keys.meta(name(i)), "head", "1")
		_ = db.Set(seen(i), "1 0 1")
		db.SetTTL(seen(i), time.Hour)
	}
	before := heap()
	for i := range partitions + atOnce {
		if i < partitions {
			begin(i)
		}
		if gone := i - atOnce; gone >= stay {
			db.Del(keys.list(name(gone)))
			db.Del(keys.meta(name(gone)))
			db.Del(seen(gone))
		}
	}
	defer expireEmbeddedKeys(server)() // only now, so that it does not depend on the time how many names are left
	var grown int64
	redistest.Until(t, time.Minute, "the names are forgotten", func() bool {
		grown = heap() - before
		return grown < 4<<20
	})
	t.Logf("%d names left %d bytes", 3*partitions, grown)

	for i := range stay {
		list, _ := db.List(keys.list(name(i)))
		result, _ := db.Get(seen(i))
		if ttl := db.TTL(seen(i)); len(list) != 1 || db.HGet(keys.meta(name(i)), "head") != "1" || result == "" || ttl <= 0 {
			t.Fatalf("%s, which is in use: list %q, result %q for %v", name(i), list, result, ttl)
		}
	}
	if n := len(server.Keys()); n != 3*stay {
		t.Errorf("%d keys are left, want %d", n, 3*stay)
	}
}

// Without these maps the store would grow for ever.
func TestTheMapsOfMiniredisAreWhereTheStoreLooks(t *testing.T) {
	t.Parallel()
	if !dropUnusedNames(miniredis.NewMiniRedis()) {
		t.Error("this version of miniredis keeps its names elsewhere: see dropUnusedNames")
	}
}

func TestAStoreThatFollowsAnEmbeddedOneHasItsEntries(t *testing.T) {
	t.Parallel()
	open := func(follows *Store, namespaces ...string) *Store {
		policies := map[string]Policy{}
		for _, name := range namespaces {
			policies[name] = DefaultPolicy()
		}
		s, err := Open(Config{URL: "embedded:", Prefix: "sw", Namespaces: policies, Follows: follows}, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := open(nil, "kart")
	g := &Group{Namespace: first.Namespace("kart"), Partition: "p", Entries: [][]byte{AppendEntry(nil, time.Now().UnixMilli(), nil, []byte("x"))}}
	first.Produce(t.Context(), []*Group{g})
	if g.Err != nil {
		t.Fatal(g.Err)
	}
	second := open(first, "kart", "chess")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	third := open(second, "kart")
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if o, err := third.Overview(t.Context(), third.Namespace("kart")); err != nil || o.Ledger.Buffered != 1 {
		t.Errorf("got %+v, %v", o, err)
	}
	address := third.backend.server.Addr()
	if err := errors.Join(third.Close(), third.Close()); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		_ = c.Close()
		t.Error("the server outlives its stores")
	}
}
