package partition_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-io/spillway/partition"
)

func theLedgerOutlivesPartitions(b *bench) {
	b.open(nil)
	for i := range 5 {
		name := fmt.Sprint("p", i%2)
		b.produce(name, b.entries(12))
		l := b.lease(name, 1, time.Hour)
		b.is("commit", b.commit(&partition.Commit{
			Lease: l, Lo: l.From, Hi: l.To, Delivered: 2, Expired: 1, Dead: 1, DeadLetters: [][]byte{[]byte("x")},
		}), nil)
		l = b.lease(name, 1, time.Hour)
		b.delivered(l, l.From, l.To)
		// Two remain, and wait; two more make a batch of them.
		b.produce(name, b.entries(2))
		l = b.lease(name, 1, time.Hour)
		b.delivered(l, l.From, l.To)
	}
	b.ledgerIs(partition.Ledger{Accepted: 70, Delivered: 50, Evicted: 10, Expired: 5, Dead: 5})
}

func theLedgerOutlivesAProcess(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(12))
	l := b.lease("kart", 1, time.Hour)
	b.delivered(l, l.From, l.To)
	b.restart()
	b.ledgerIs(partition.Ledger{Accepted: 12, Delivered: 4, Evicted: 2, Buffered: 6})
	l = b.lease("kart", 1, time.Hour)
	b.same("the rest", texts(l), "[7 8 9 10]")
	b.delivered(l, l.From, l.To)
	b.ledgerIs(partition.Ledger{Accepted: 12, Delivered: 8, Evicted: 2, Buffered: 2})
}

func anotherProcessReplaysARange(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(9))
	first := b.lease("kart", 2, 100*time.Millisecond)
	b.restart()
	again := b.lease("kart", 1, time.Hour)
	b.same("range", []any{again.From, again.Cuts, texts(again), again.Attempt}, []any{first.From, first.Cuts, texts(first), 2})
}

func anotherProcessKnowsTheKey(b *bench) {
	b.open(nil)
	g := b.group("kart", b.entries(3))
	g.IdempotencyKey = "k"
	b.store.Produce(b.Context(), []*partition.Group{g})
	b.is("first", g.Err, nil)
	b.restart()
	g.Namespace = b.ns
	b.store.Produce(b.Context(), []*partition.Group{g})
	b.same("again", []any{g.Err, g.Repeated, g.Depth}, []any{nil, true, 3})
}

func deadLettersAreBounded(b *bench) {
	b.open(func(p *partition.Policy) { p.MaxDead = 3 })
	for i := range 3 {
		b.produce("kart", b.entries(4))
		l := b.lease("kart", 1, time.Hour)
		letters := [][]byte{fmt.Appendf(nil, "a%d", i), fmt.Appendf(nil, "b%d", i)}
		b.is("commit", b.commit(&partition.Commit{Lease: l, Lo: l.From, Hi: l.To, Delivered: 2, Dead: 2, DeadLetters: letters}), nil)
	}
	o, err := b.store.Overview(b.Context(), b.ns)
	b.is("overview", err, nil)
	b.same("kept and dropped", []int64{o.DeadLetters, o.DeadEvicted}, []int64{3, 3})
	b.ledgerIs(partition.Ledger{Accepted: 12, Delivered: 6, Dead: 6})
}

func statsDescribeAPartition(b *bench) {
	b.open(nil)
	_, err := b.store.Stats(b.Context(), b.ns, "kart")
	b.is("nothing there", err, partition.ErrNoPartition)
	b.produce("kart", b.aged(10, 5*time.Second))
	b.produce("kart", b.entries(3))
	b.lease("kart", 1, time.Hour)
	st, err := b.store.Stats(b.Context(), b.ns, "kart")
	b.is("stats", err, nil)
	if st.OldestAge < 4900*time.Millisecond || st.OldestAge > 25*time.Second {
		b.Errorf("age of the oldest: %v, want 5s", st.OldestAge)
	}
	if lapses := b.now() + time.Hour.Milliseconds(); st.Due < lapses-patience.Milliseconds() || st.Due > lapses {
		b.Errorf("due at %d, want when the lease lapses, at about %d", st.Due, lapses)
	}
	st.OldestAge, st.Due = 0, 0
	b.same("stats", fmt.Sprintf("%+v", st), fmt.Sprintf("%+v", partition.Stats{
		Partition: "kart", Depth: 10, Capacity: 10, Leased: true, Attempt: 1, Accepted: 13, Evicted: 3,
	}))
}

func anOverviewDescribesANamespace(b *bench) {
	b.open(nil)
	o, err := b.store.Overview(b.Context(), b.ns)
	b.is("overview", err, nil)
	b.same("nothing there", fmt.Sprintf("%+v", o), fmt.Sprintf("%+v", partition.Overview{}))
	b.produce("waits", b.entries(1))
	o, _ = b.store.Overview(b.Context(), b.ns)
	b.same("not due", []any{o.Partitions, o.Overdue}, []any{1, time.Duration(0)})
	b.produce("full", b.entries(4))
	b.pass(40)
	o, _ = b.store.Overview(b.Context(), b.ns)
	if o.Partitions != 2 || o.Overdue <= 0 || o.Overdue > patience {
		b.Errorf("got %d partitions, %v overdue", o.Partitions, o.Overdue)
	}
}

func dueIsInTheOrderOfTime(b *bench) {
	b.open(nil)
	b.produce("later", b.entries(1))
	b.produce("first", b.entries(4))
	b.pass(5)
	b.produce("second", b.entries(4))
	list, total, err := b.store.Due(b.Context(), b.ns, 0, 0, 10)
	b.is("due", err, nil)
	var names []string
	for _, d := range list {
		names = append(names, d.Partition)
	}
	b.same("partitions", names, []string{"first", "second", "later"})
	if total < 1 || total > 2 {
		b.Errorf("%d are due, want 2", total)
	}
	list, _, err = b.store.Due(b.Context(), b.ns, 0, 1, 1)
	b.same("offset and limit", []any{list[0].Partition, len(list), err}, []any{"second", 1, nil})
}

// Four producers and three drainers at once: every accepted entry is delivered
// once, in order, or evicted, and the account says so.
func producersAndDrainersTogetherLoseNone(b *bench) {
	b.open(func(p *partition.Policy) {
		p.Capacity, p.Batch, p.Linger, p.Shards = 200, 16, 5*time.Millisecond, 2
	})
	const producers, drainers, rounds = 4, 3, 60
	names := []string{"a", "b", "c", "d", "e"}
	var producing, draining sync.WaitGroup
	var mu sync.Mutex
	var accepted, evicted, delivered int
	last := map[string]int64{}
	now := b.now()
	for i := range producers {
		producing.Go(func() {
			for round := range rounds {
				var groups []*partition.Group
				for j, name := range names {
					var entries [][]byte
					for k := range 1 + (i+j+round)%9 {
						entries = append(entries, partition.AppendEntry(nil, now, nil, fmt.Appendf(nil, "%d.%d.%d", i, round, k)))
					}
					groups = append(groups, b.group(name, entries))
				}
				b.store.Produce(b.Context(), groups)
				mu.Lock()
				for _, g := range groups {
					if g.Err != nil {
						b.Errorf("produce: %v", g.Err)
					}
					accepted, evicted = accepted+g.Accepted, evicted+g.Evicted
				}
				mu.Unlock()
			}
		})
	}
	ctx, stop := context.WithTimeout(b.Context(), patience)
	defer stop()
	for i := range drainers {
		shard := i % 2
		draining.Go(func() {
			for ctx.Err() == nil {
				list, total, err := b.store.Due(ctx, b.ns, shard, 0, 3)
				if err != nil || total == 0 {
					if ctx.Err() == nil {
						b.store.WaitDue(ctx, b.ns, shard, b.now()+2, time.Second)
					}
					continue
				}
				var requests []partition.ClaimRequest
				for _, d := range list {
					requests = append(requests, partition.ClaimRequest{Namespace: b.ns, Partition: d.Partition, MaxBatches: 2})
				}
				claims := b.store.Claim(ctx, requests, time.Hour)
				for _, c := range claims {
					if c.Lease == nil {
						continue
					}
					mu.Lock()
					if c.Lease.From <= last[c.Partition] {
						b.Errorf("%s: range from %d after %d", c.Partition, c.Lease.From, last[c.Partition])
					}
					last[c.Partition] = c.Lease.To - 1
					mu.Unlock()
					s := &partition.Commit{Lease: c.Lease, Lo: c.Lease.From, Hi: c.Lease.To, Delivered: len(c.Lease.Entries)}
					if err := b.commit(s); err != nil {
						b.Errorf("commit: %v", err)
					}
					mu.Lock()
					delivered += len(c.Lease.Entries)
					mu.Unlock()
				}
			}
		})
	}
	producing.Wait()
	for ctx.Err() == nil {
		o, err := b.store.Overview(ctx, b.ns)
		if err == nil && o.Ledger.Buffered == 0 && o.Partitions == 0 {
			break
		}
		b.store.WaitDue(ctx, b.ns, 0, b.now()+5, time.Second)
	}
	if ctx.Err() != nil {
		b.Errorf("not drained in %v", patience)
	}
	stop()
	draining.Wait()
	o, err := b.store.Overview(b.Context(), b.ns)
	b.is("overview", err, nil)
	b.same("what the producers saw evicted", int64(evicted), o.Ledger.Evicted+o.Reclaimed)
	b.ledgerIs(partition.Ledger{Accepted: int64(accepted), Delivered: int64(delivered), Evicted: int64(evicted) - o.Reclaimed})
}

// list reads all pages of the namespace's partitions; between calls after each.
func (b *bench) list(limit int, between func()) (all []partition.Stats) {
	b.Helper()
	var from partition.Page
	for pages := 0; ; pages++ {
		page, next, err := b.store.Partitions(b.Context(), b.ns, from, limit)
		if err != nil || len(page) > limit || pages > 1000 {
			b.Fatalf("page %d: %d partitions, %v", pages, len(page), err)
		}
		all = append(all, page...)
		if from = next; next == (partition.Page{}) {
			return all
		}
		between()
	}
}

func partitionsAreListed(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards = 3 })
	b.same("nothing there", b.list(7, func() {}), "[]")
	want, got := map[string]int{}, map[string]int{}
	for i := range 50 {
		want[fmt.Sprint("p", i)] = i%3 + 1
		b.produce(fmt.Sprint("p", i), b.entries(i%3+1))
	}
	list := b.list(7, func() {})
	for _, st := range list {
		got[st.Partition] += st.Depth
	}
	b.same("depth by partition", got, want)
	st, err := b.store.Stats(b.Context(), b.ns, list[0].Partition)
	b.is("stats", err, nil)
	list[0].OldestAge, st.OldestAge = 0, 0
	b.same("the same partition alone", st, list[0])
}

// Partitions that nothing happens to are listed once, whatever happens to the others.
func aListOfPartitionsMissesNone(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards, p.Batch = 2, 1 })
	want, got := map[string]int{}, map[string]int{}
	var busy []string
	for i := range 90 {
		name := fmt.Sprint("p", i)
		b.produce(name, b.entries(2))
		if want[name] = 1; i%3 != 0 {
			delete(want, name)
			busy = append(busy, name)
		}
	}
	for _, st := range b.list(4, func() {
		for range 5 {
			name := busy[rand.IntN(len(busy))]
			if c := b.claim(name, 2, time.Hour); c.Lease != nil {
				b.delivered(c.Lease, c.Lease.From, c.Lease.To)
			} else {
				b.produce(name, b.entries(1))
			}
		}
	}) {
		if want[st.Partition] == 1 {
			got[st.Partition]++
		}
	}
	b.same("partitions that nothing happened to", got, want)
}

// Describing them takes several calls, because each reads the oldest entry.
func partitionsWithLargeEntriesAreListed(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards = 1 })
	var want, got []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("p%02d", i))
		b.produce(want[i], [][]byte{partition.AppendEntry(nil, b.now(), nil, make([]byte, 100_000))})
	}
	for _, st := range b.list(100, func() {}) {
		got = append(got, st.Partition)
	}
	slices.Sort(got)
	b.same("partitions", got, want)
}

// peeked is what a peek found, as text: depth, then sequence minus first and payload of each entry.
func (b *bench) peeked(r partition.PeekRequest, first int64) string {
	b.Helper()
	p, err := b.store.Peek(b.Context(), b.ns, "kart", r)
	b.is("peek", err, nil)
	text := fmt.Sprint(p.Depth)
	for _, e := range p.Entries {
		text += fmt.Sprintf(" %d:%s", e.Seq-first, e.Payload)
	}
	return text
}

func aPeekChangesNothing(b *bench) {
	b.open(nil)
	_, err := b.store.Peek(b.Context(), b.ns, "kart", partition.PeekRequest{Limit: 1})
	b.is("nothing there", err, partition.ErrNoPartition)
	b.produce("kart", b.entries(13))
	l := b.lease("kart", 1, time.Hour)
	oldest, newest := partition.PeekRequest{Limit: 3}, partition.PeekRequest{FromNewest: true, Limit: 3}
	b.same("the oldest", b.peeked(oldest, l.From), "10 0:4 1:5 2:6")
	b.same("the newest", b.peeked(newest, l.From), "10 7:11 8:12 9:13")
	b.same("all", b.peeked(partition.PeekRequest{Limit: 1000}, l.From), "10 0:4 1:5 2:6 3:7 4:8 5:9 6:10 7:11 8:12 9:13")
	b.same("none is one", b.peeked(partition.PeekRequest{}, l.From), "10 0:4")
	b.delivered(l, l.From, l.To)
	b.same("after a commit", b.peeked(oldest, l.From), "6 4:8 5:9 6:10")
	b.ledgerIs(partition.Ledger{Accepted: 13, Delivered: 4, Evicted: 3, Buffered: 6})
}

func aPeekIsBoundedInBytes(b *bench) {
	b.open(func(p *partition.Policy) { p.Capacity = 1000 })
	large := strings.Repeat("x", 100<<10)
	entries := b.entries(60)
	for i, e := range entries {
		if i%2 == 0 {
			entries[i] = append(e, large...)
		}
	}
	b.produce("kart", entries)
	for _, newest := range []bool{false, true} {
		p, err := b.store.Peek(b.Context(), b.ns, "kart", partition.PeekRequest{FromNewest: newest, Limit: 128})
		b.is("peek", err, nil)
		bytes := 0
		for _, e := range p.Entries {
			bytes += len(e.Payload)
		}
		if bytes < 900<<10 || bytes > 1<<20+len(large) || len(p.Entries) < 18 {
			b.Errorf("newest %v: got %d entries of %d bytes, want about 1 MiB", newest, len(p.Entries), bytes)
		}
	}
}
