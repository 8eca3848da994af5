package partitiontest

import (
	"fmt"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// purge runs a request that must succeed.
func (b *bench) purge(r partition.PurgeRequest) partition.PurgeResult {
	b.Helper()
	result, err := b.store.Purge(b.Context(), b.ns, r)
	b.is("purge", err, nil)
	return result
}

// purged checks the ledger's part that purges wrote.
func (b *bench) purged(want int64) {
	b.Helper()
	o, err := b.store.Overview(b.Context(), b.ns)
	b.is("overview", err, nil)
	b.same("purged", o.Purged, want)
}

func aPurgeDropsWhatIsOld(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards = 3 })
	for i := range 20 {
		name := fmt.Sprint("p", i)
		b.produce(name, append(b.aged(i%4, 10*time.Minute), b.entries(2)...))
	}
	request := partition.PurgeRequest{OlderThan: 5 * time.Minute, DryRun: true}
	want := partition.PurgeResult{Entries: 30, Partitions: 15, Complete: true}
	b.same("dry run", b.purge(request), want)
	b.ledgerIs(partition.Ledger{Accepted: 70, Buffered: 70})
	request.DryRun = false
	b.same("purge", b.purge(request), want)
	b.same("again", b.purge(request), partition.PurgeResult{Complete: true})
	b.ledgerIs(partition.Ledger{Accepted: 70, Evicted: 30, Buffered: 40})
	b.purged(30)
	b.same("one partition", b.purge(partition.PurgeRequest{Partition: "p3"}), partition.PurgeResult{Entries: 2, Partitions: 1, Complete: true})
	b.same("nothing there", b.purge(partition.PurgeRequest{Partition: "p3"}), partition.PurgeResult{Complete: true})
	b.same("all", b.purge(partition.PurgeRequest{}), partition.PurgeResult{Entries: 38, Partitions: 19, Complete: true})
	b.ledgerIs(partition.Ledger{Accepted: 70, Evicted: 70})
	b.purged(70)
	b.produce("p3", b.entries(4))
	b.same("nothing is left behind", b.lease("p3", 1, time.Hour).Attempt, 1)
}

func aPurgeHasALimit(b *bench) {
	b.open(func(p *partition.Policy) { p.Capacity = 3000 })
	for range 3 {
		b.produce("deep", b.aged(1000, time.Minute))
	}
	b.produce("p", b.aged(5, time.Minute))
	for _, dry := range []bool{true, false} {
		for _, age := range []time.Duration{0, time.Second} {
			if dry {
				r := partition.PurgeRequest{OlderThan: age, Limit: 3005, DryRun: true}
				b.same("all", b.purge(r), partition.PurgeResult{Entries: 3005, Partitions: 2, Complete: true})
			}
			for _, limit := range []int64{1, 1400} {
				r := partition.PurgeRequest{OlderThan: age, Limit: limit, DryRun: dry}
				got := b.purge(r)
				b.same(fmt.Sprintf("%+v", r), []any{got.Entries, got.Complete}, []any{limit, false})
			}
		}
	}
	left := int64(3005 - 2802)
	b.same("as many as are left", b.purge(partition.PurgeRequest{Limit: left}).Complete, true)
	b.ledgerIs(partition.Ledger{Accepted: 3005, Evicted: 3005})
}

func aPurgeLeavesLeasesAlone(b *bench) {
	b.open(nil)
	b.produce("held", b.entries(6))
	b.produce("lapsed", b.entries(6))
	b.produce("free", b.entries(6))
	held := b.lease("held", 1, time.Hour)
	lapsed := b.lease("lapsed", 1, 10*time.Millisecond)
	b.await(b.Context(), "lapsed")
	b.same("purge", b.purge(partition.PurgeRequest{}), partition.PurgeResult{Entries: 12, Partitions: 2, Leased: 1, Complete: true})
	b.delivered(held, held.From, held.To)
	b.is("commit after the lease", b.commit(&partition.Commit{Lease: lapsed, Lo: lapsed.From, Hi: lapsed.To, Delivered: 4}), partition.ErrGone)
	b.ledgerIs(partition.Ledger{Accepted: 18, Delivered: 4, Evicted: 12, Buffered: 2})
}

// What a sink accepted of a batch that failed in part is delivered, although it is purged.
func aPurgeKnowsWhatTheSinkTook(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(6))
	l := b.lease("kart", 1, time.Hour)
	b.is("release", b.release(&partition.Release{Lease: l, Attempt: 1, Done: []bool{true, false, true, false}}), nil)
	b.same("purge", b.purge(partition.PurgeRequest{Limit: 2}), partition.PurgeResult{Entries: 2, Partitions: 1})
	b.ledgerIs(partition.Ledger{Accepted: 6, Delivered: 1, Evicted: 1, Buffered: 4})
	b.same("the rest", b.purge(partition.PurgeRequest{}), partition.PurgeResult{Entries: 4, Partitions: 1, Complete: true})
	b.ledgerIs(partition.Ledger{Accepted: 6, Delivered: 2, Evicted: 4})
	b.purged(6)
}
