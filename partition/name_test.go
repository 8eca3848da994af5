package partition

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

var (
	namespaceForm = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\z`)
	partitionForm = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}\z`)
)

// hostile names, from faults.md.
var hostile = []string{
	"", "a", "A0", "com.acme.kart", "a-b_c.d", strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("x", 128),
	strings.Repeat("x", 129), "{}", "a}{p1}b", "x{}b{p1}", "*", "?", " ", "a b", ":", "a:b", "/", "..", ".", "-a", "_a", "a\n", "a\r\nb",
	"a\x00", "\u202ea", "а", "__proto__", "%7B", "a%7B", "é", "\xff", "a\n}", "0", "9.", "-rf", "<img/src=x>", "{p1", "a\u202eb",
}

func FuzzName(f *testing.F) {
	for _, name := range hostile {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if got, want := ValidNamespace(name), namespaceForm.MatchString(name); got != want {
			t.Errorf("namespace %q: got %v, want %v", name, got, want)
		}
		if got, want := ValidPartition(name), partitionForm.MatchString(name); got != want {
			t.Errorf("partition %q: got %v, want %v", name, got, want)
		}
		if ValidPartition(name) != ValidPartition([]byte(name)) || ValidNamespace(name) != ValidNamespace([]byte(name)) {
			t.Errorf("%q: text and bytes differ", name)
		}
	})
}

func TestKeysAreTakenApartAsTheyWereMade(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{"default", "a.0", "x-y_z"} {
		k := &shard{Shard: space.NewHome("sw", namespace, 13, nil).Shards()[12]}
		for _, name := range hostile {
			if !ValidPartition(name) {
				continue
			}
			for _, key := range []string{k.list(name), k.meta(name)} {
				prefix, got, ok := splitPartitionKey(key)
				if prefix != k.Prefix || got != name || !ok {
					t.Errorf("%s: got %q %q %v", key, prefix, got, ok)
				}
			}
		}
	}
	for _, key := range []string{"", "sw", "sw:{a.0}:", "sw:{a.0}:q", "sw:{a.0}:q:", "}:", "}:q:a/b", "sw:{a.0}:q:{x}:q:a"} {
		if prefix, name, ok := splitPartitionKey(key); ok {
			t.Errorf("%q: taken for partition %q of %q", key, name, prefix)
		}
	}
}

// ShardOf is part of the stored format: these values never change.
func TestShardOfNeverChanges(t *testing.T) {
	t.Parallel()
	policy := DefaultPolicy()
	policy.Shards = 1024
	ns, err := newNamespace("sw", "default", policy)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"a": 0x12c, "kart": 0x317, "com.acme.kart": 0x6e} {
		h := fnv.New32a()
		h.Write([]byte(name))
		if got := ns.ShardOf(name); got != want || got != int(h.Sum32()%1024) {
			t.Errorf("%s: got %#x, want %#x", name, got, want)
		}
	}
}

func TestEveryShardGetsItsPartOfMaxPartitions(t *testing.T) {
	t.Parallel()
	for _, row := range [][3]int{{1, 100, 100}, {4, 100, 25}, {3, 100, 34}, {8, 1, 1}} {
		if got := each(row[1], row[0]); got != row[2] {
			t.Errorf("%d shards, %d partitions: got %d each, want %d", row[0], row[1], got, row[2])
		}
	}
}

// A slot's zone is its twelfth of the cluster, also where a shard is the only one.
func TestAZoneIsAPartOfTheClustersSlots(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartMasters(t, 1)
	policy := DefaultPolicy()
	policy.Shards = AutoShards
	s, err := Open(Config{URL: cluster.URL(), Prefix: "sw", Namespaces: map[string]Policy{"one": DefaultPolicy(), "auto": policy}}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Zones() != MaxZones || s.Namespace("one").Shards() != 1 || s.Namespace("auto").Shards() != 4 {
		t.Errorf("%d zones, %d shards of one, %d of auto", s.Zones(), s.Namespace("one").Shards(), s.Namespace("auto").Shards())
	}
	ns, used := s.Namespace("auto"), map[int]bool{}
	for i := range 100 {
		name := fmt.Sprint("p", i)
		used[ns.ZoneOf(name)] = true
		if want := backend.Slot(ns.shardOf(name).Prefix) * MaxZones / backend.Slots; ns.ZoneOf(name) != want {
			t.Errorf("%s: zone %d, want %d", name, ns.ZoneOf(name), want)
		}
	}
	if len(used) != 4 {
		t.Errorf("%d zones of four shards spread evenly", len(used))
	}
	if got := (&Namespace{Name: "bare"}).ZoneOf("kart"); got != 0 {
		t.Errorf("a namespace without shards: zone %d", got)
	}
}
