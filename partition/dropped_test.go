package partition_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
)

// openDrops opens a store with partitions of 3 entries that are stale after a second.
func openDrops(t *testing.T, url string) (*site, *drops.Log) {
	t.Helper()
	log := drops.NewLog()
	policy := partition.DefaultPolicy()
	policy.Capacity, policy.Linger, policy.MaxAge = 3, time.Millisecond, time.Second
	s, err := partition.Open(partition.Config{URL: url, Prefix: "sw", Namespaces: map[string]partition.Policy{"default": policy}, Drops: log},
		prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &site{s, t, s.Namespace("default")}, log
}

// old is an entry that is stale in a store of openDrops.
func old(id string) []byte {
	return partition.AppendEntry(nil, time.Now().Add(-time.Minute).UnixMilli(), []byte(id), []byte("{}"))
}

func TestEvictedAndExpiredEntriesAreCountedByPartition(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, log := openDrops(t, server.URL())
	store := func(name string, entries ...[]byte) {
		t.Helper()
		g := &partition.Group{Namespace: s.ns, Partition: name, Entries: entries}
		if s.Produce(t.Context(), []*partition.Group{g}); g.Err != nil {
			t.Fatal(g.Err)
		}
	}
	store("full", entry("1"), entry("2"))
	store("full", entry("3"), entry("4"), entry("5"))
	list := log.Recent(drops.Query{Reason: drops.Evicted})
	if len(list) != 1 || list[0].Partition != "full" || list[0].Entries != 2 || list[0].Namespace != "default" {
		t.Errorf("evicted %+v", list)
	}

	store("claimed", old("a"), old("b"))
	redistest.Until(t, repairTimeout, "the claim drops two stale entries", func() bool {
		s.Claim(t.Context(), []partition.ClaimRequest{{Namespace: s.ns, Partition: "claimed", MaxBatches: 1}}, time.Minute)
		list := log.Recent(drops.Query{Reason: drops.Expired, Partition: "claimed"})
		return len(list) == 1 && list[0].Entries == 2
	})

	store("forgotten", old("a"))
	startJanitor(t, s.Store)
	redistest.Until(t, repairTimeout, "the janitor drops a stale entry", func() bool {
		list := log.Recent(drops.Query{Reason: drops.Expired, Partition: "forgotten"})
		return len(list) == 1 && list[0].Entries == 1
	})
}
