package partition

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

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
	address := third.backend.Out.(*redis.Client).Options().Addr
	if err := errors.Join(third.Close(), third.Close()); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		_ = c.Close()
		t.Error("the server outlives its stores")
	}
}
