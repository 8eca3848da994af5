package partition_test

import (
	"fmt"
	"slices"
	"strings"
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
	return &site{Store: s, t: t, ns: s.Namespace("default")}, log
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
	if len(list) != 1 || list[0].Partition != "full" || list[0].Entries != 2 || list[0].Namespace != "default" || list[0].Detail != "" {
		t.Errorf("evicted %+v", list)
	}
	var flood [][]byte
	for n := range s.ns.Policy.Capacity + 1 {
		flood = append(flood, entry(fmt.Sprint(n)))
	}
	store("flooded", flood...)
	list = log.Recent(drops.Query{Reason: drops.Evicted, Partition: "flooded"})
	if want := fmt.Sprintf("%d entries came at once, and the partition keeps %d", len(flood), len(flood)-1); len(list) != 1 || list[0].Detail != want {
		t.Errorf("evicted %+v, want %s", list, want)
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

// While partitions are full and drained at once, the samples name entries that were
// evicted, and none that was delivered or is still there.
func TestSamplesOfAFloodNameEntriesThatWereEvicted(t *testing.T) {
	t.Parallel()
	s, log := openDrops(t, redistest.Start(t).URL())
	names := []string{"a", "b", "c", "d"}
	became := map[string]string{} // by id; empty: it is in a partition, or was evicted
	delivered := 0
	round := func() {
		var requests []partition.ClaimRequest
		for _, name := range names {
			requests = append(requests, partition.ClaimRequest{Namespace: s.ns, Partition: name, MaxBatches: 1})
		}
		var commits []*partition.Commit
		for _, c := range s.Claim(t.Context(), requests, time.Minute) {
			if l := c.Lease; l != nil {
				commits = append(commits, &partition.Commit{Lease: l, Lo: l.From, Hi: l.To, Delivered: len(l.Entries)})
			}
		}
		produce := func(k int) {
			var groups []*partition.Group
			for _, name := range names {
				g := &partition.Group{Namespace: s.ns, Partition: name}
				for range k {
					id := fmt.Sprint(name, "-", len(became))
					became[id] = ""
					g.Entries = append(g.Entries, partition.AppendEntry(nil, time.Now().UnixMilli(), []byte(id), []byte("{}")))
				}
				groups = append(groups, g)
			}
			s.Produce(t.Context(), groups)
			for _, g := range groups {
				if g.Err != nil {
					t.Fatal(g.Err)
				}
			}
		}
		produce(1) // evicts entries of the leases
		produce(4)
		s.Commit(t.Context(), commits)
		for _, c := range commits {
			if c.Err != nil {
				continue
			}
			for _, e := range c.Lease.Entries {
				became[string(e.ID)] = "delivered"
				delivered++
			}
		}
		produce(5)
	}
	var named []drops.Drop
	redistest.Until(t, time.Minute, "samples name 6 entries, and 100 are delivered", func() bool { // only in one ms of 64
		for range 20 {
			round()
		}
		named = slices.DeleteFunc(log.Recent(drops.Query{Reason: drops.Evicted}), func(d drops.Drop) bool { return d.ID == "" })
		return len(named) >= 6 && delivered >= 100
	})
	for _, name := range names {
		for _, c := range s.Claim(t.Context(), []partition.ClaimRequest{{Namespace: s.ns, Partition: name, MaxBatches: 1}}, time.Minute) {
			if c.Lease != nil {
				for _, e := range c.Lease.Entries {
					became[string(e.ID)] = "still there"
				}
			}
		}
	}
	for _, d := range named {
		if fate, known := became[d.ID]; !known || fate != "" || !strings.HasPrefix(d.ID, d.Partition+"-") || d.Age > time.Minute {
			t.Errorf("%+v: %q", d, fate)
		}
	}
}
