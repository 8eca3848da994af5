package partition_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/partition"
)

func produceDropsTheOldest(b *bench) {
	b.open(nil)
	for _, row := range []struct{ k, evicted, depth int }{{3, 0, 3}, {7, 0, 10}, {1, 1, 10}, {6, 6, 10}, {10, 10, 10}, {25, 25, 10}} {
		g := b.produce("kart", b.entries(row.k))
		b.same(fmt.Sprintf("%d more", row.k), []int{g.Accepted, g.Evicted, g.Depth}, []int{row.k, row.evicted, row.depth})
	}
	l := b.lease("kart", 3, time.Hour)
	b.same("the newest are left", texts(l), "[43 44 45 46 47 48 49 50]")
	b.ledgerIs(partition.Ledger{Accepted: 52, Evicted: 42, Buffered: 10})
}

func produceRunsEachGroupByItself(b *bench) {
	b.open(func(p *partition.Policy) { p.MaxPartitions = 3 })
	var groups []*partition.Group
	for i := range 5 {
		groups = append(groups, b.group(fmt.Sprint("p", i), b.entries(i+1)))
	}
	groups[1].Entries = nil // a bug of the caller, and only its own
	b.store.Produce(b.Context(), groups)
	b.is("no entries", groups[1].Err, partition.ErrBroken)
	b.is("a partition too many", groups[4].Err, partition.ErrTooManyPartitions)
	for _, i := range []int{0, 2, 3} {
		b.same(fmt.Sprint("group ", i), []any{groups[i].Accepted, groups[i].Depth, groups[i].Err}, []any{i + 1, i + 1, nil})
	}
	b.ledgerIs(partition.Ledger{Accepted: 8, Buffered: 8})
}

func anIdempotencyKeyCountsOnce(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(9))
	once := func(name, key string, entries [][]byte) *partition.Group {
		g := b.group(name, entries)
		g.IdempotencyKey = key
		b.store.Produce(b.Context(), []*partition.Group{g})
		b.is("produce", g.Err, nil)
		return g
	}
	entries := b.entries(3)
	for i, g := range []*partition.Group{once("kart", "k1", entries), once("kart", "k1", entries)} {
		b.same("result", []any{g.Accepted, g.Evicted, g.Depth, g.Repeated}, []any{3, 2, 10, i == 1})
	}
	b.same("another key", once("kart", "k2", entries).Repeated, false)
	b.same("another partition", once("kart.2", "k1", entries).Repeated, false)
	b.same("a key of any bytes", once("kart.2", "\x00\r\n {}:*\xff", entries).Repeated, false)
	b.same("and again", once("kart.2", "\x00\r\n {}:*\xff", entries).Repeated, true)
	b.ledgerIs(partition.Ledger{Accepted: 21, Evicted: 5, Buffered: 16})
}

func keysAreBounded(b *bench) {
	b.open(func(p *partition.Policy) { p.MaxKeys = 2 })
	once := func(key string) *partition.Group {
		g := b.group("kart", b.entries(1))
		g.IdempotencyKey = key
		b.store.Produce(b.Context(), []*partition.Group{g})
		return g
	}
	for _, key := range []string{"1", "2", "1"} {
		b.is("key "+key, once(key).Err, nil)
	}
	b.is("a third key", once("3").Err, partition.ErrTooManyKeys)
	b.is("without a key", once("").Err, nil)
	b.is("a key of a fan-out", once("branch\n3").Err, nil)
	o, err := b.store.Overview(b.Context(), b.ns)
	b.same("keys", []any{o.Keys, err}, []any{3, nil})
	b.ledgerIs(partition.Ledger{Accepted: 4, Buffered: 4})
}

func partitionsAreBounded(b *bench) {
	b.open(func(p *partition.Policy) { p.MaxPartitions, p.Linger = 2, 0 })
	b.produce("a", b.entries(4))
	b.produce("b", b.entries(1))
	g := b.group("c", b.entries(1))
	g.IdempotencyKey = "k"
	b.store.Produce(b.Context(), []*partition.Group{g})
	b.is("a third partition", g.Err, partition.ErrTooManyPartitions)
	b.produce("a", b.entries(1))
	l := b.lease("a", 2, time.Hour)
	b.delivered(l, l.From, l.To)
	l = b.lease("a", 1, time.Hour)
	b.delivered(l, l.From, l.To)
	b.store.Produce(b.Context(), []*partition.Group{g})
	b.same("once one is empty", []any{g.Err, g.Repeated, g.Depth}, []any{nil, false, 1})
	b.ledgerIs(partition.Ledger{Accepted: 7, Delivered: 5, Buffered: 2})
}

func shardsShareANamespace(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards, p.MaxPartitions = 4, 1000 })
	used := map[int]bool{}
	var groups []*partition.Group
	for i := range 40 {
		name := fmt.Sprint("player-", i)
		used[b.ns.ShardOf(name)] = true
		groups = append(groups, b.group(name, b.entries(4)))
	}
	b.same("shards used", len(used), 4)
	b.store.Produce(b.Context(), groups)
	var requests []partition.ClaimRequest
	for i, g := range groups {
		b.is(g.Partition, g.Err, nil)
		if i%2 == 0 {
			requests = append(requests, partition.ClaimRequest{Namespace: b.ns, Partition: g.Partition, MaxBatches: 1})
		}
	}
	listed := 0
	for shard := range 4 {
		list, total, err := b.store.Due(b.Context(), b.ns, shard, 0, 100)
		b.is("due", err, nil)
		b.same("all of them are due", total, len(list))
		for _, d := range list {
			b.same("shard of "+d.Partition, b.ns.ShardOf(d.Partition), shard)
		}
		listed += len(list)
	}
	b.same("partitions listed", listed, 40)
	claims := b.store.Claim(b.Context(), requests, time.Hour)
	var ends []*partition.Commit
	for _, c := range claims {
		if c.Err != nil || c.Lease == nil {
			b.Fatalf("%s: %v", c.Partition, c.Err)
		}
		ends = append(ends, &partition.Commit{Lease: c.Lease, Lo: c.Lease.From, Hi: c.Lease.To, Delivered: 4})
	}
	b.store.Commit(b.Context(), ends)
	for _, s := range ends {
		b.is(s.Lease.Partition, s.Err, nil)
	}
	o, err := b.store.Overview(b.Context(), b.ns)
	b.is("overview", err, nil)
	b.same("partitions", o.Partitions, 20)
	b.ledgerIs(partition.Ledger{Accepted: 160, Delivered: 80, Buffered: 80})
}

func namespacesDoNotMeet(b *bench) {
	b.open(nil)
	policy := b.ns.Policy
	if b.target.Alone {
		b.prefix += "x"
	}
	store := b.another(map[string]partition.Policy{"default": policy, "default.0": policy, "other": policy})
	for _, name := range []string{"default", "default.0", "other"} {
		b.store, b.ns = store, store.Namespace(name)
		b.produce("0", b.entries(2))
		b.produce("kart", b.entries(1))
	}
	for _, ns := range store.Namespaces() {
		b.ns = ns
		b.ledgerIs(partition.Ledger{Accepted: 3, Buffered: 3})
	}
}

func aFullBatchIsDueNow(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(3))
	b.same("not before", b.claim("kart", 1, time.Hour).Lease == nil, true)
	b.produce("kart", b.entries(1))
	c := b.claim("kart", 1, time.Hour)
	if c.Lease == nil {
		b.Fatal("a full batch is not due")
	}
	b.same("batch", texts(c.Lease), "[1 2 3 4]")
	b.produce("born-full", b.entries(4))
	b.same("at birth", b.claim("born-full", 1, time.Hour).Lease != nil, true)
}

func lessThanABatchLingers(b *bench) {
	b.open(func(p *partition.Policy) { p.Linger = 300 * time.Millisecond })
	began := time.Now()
	b.produce("kart", b.entries(1))
	b.produce("kart", b.entries(1)) // does not postpone it
	l := b.lease("kart", 1, time.Hour)
	if waited := time.Since(began); waited < 260*time.Millisecond {
		b.Errorf("waited %v, want seven eighths of 300ms at least", waited)
	}
	b.same("batch", texts(l), "[1 2]")
}

func aLeaseIsExclusive(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(9))
	before := time.Now()
	l := b.lease("kart", 1, time.Minute)
	if l.Token == "" || l.Until.Before(before.Add(time.Minute)) || l.Until.After(time.Now().Add(time.Minute)) {
		b.Errorf("lease %q until %v", l.Token, l.Until)
	}
	for range 3 {
		b.same("while it lasts", b.claim("kart", 1, time.Minute).Lease == nil, true)
	}
	b.delivered(l, l.From, l.To)
	next := b.lease("kart", 1, time.Minute)
	b.same("the next batch", []any{next.From, texts(next), next.Token != l.Token}, []any{l.To, "[5 6 7 8]", true})
}

func aLeaseCoversSeveralBatches(b *bench) {
	b.open(func(p *partition.Policy) { p.Capacity = 100 })
	b.produce("kart", b.entries(11))
	l := b.lease("kart", 5, time.Hour)
	b.same("cuts", l.Cuts, []int64{l.From + 4, l.From + 8})
	b.same("entries", []any{len(l.Entries), l.To}, []any{8, l.From + 8})
	for i, e := range l.Entries {
		b.same("entry", []any{e.Seq, string(e.Payload)}, []any{l.From + int64(i), fmt.Sprint(i + 1)})
	}
	b.delivered(l, l.From, l.Cuts[0])
	b.delivered(l, l.Cuts[0], l.To)
	b.ledgerIs(partition.Ledger{Accepted: 11, Delivered: 8, Buffered: 3})
}

func onlyTheHolderCommits(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(8))
	old := b.lease("kart", 1, 20*time.Millisecond)
	l := b.lease("kart", 1, time.Hour)
	b.is("commit", b.commit(&partition.Commit{Lease: old, Lo: old.From, Hi: old.To, Delivered: 4}), partition.ErrGone)
	b.is("release", b.release(&partition.Release{Lease: old}), partition.ErrGone)
	b.ledgerIs(partition.Ledger{Accepted: 8, Buffered: 8})
	b.delivered(l, l.From, l.To)
	b.is("after the end", b.commit(&partition.Commit{Lease: l, Lo: l.From, Hi: l.To, Delivered: 4}), partition.ErrGone)
	b.ledgerIs(partition.Ledger{Accepted: 8, Delivered: 4, Buffered: 4})
}

func aCommitRepeatedCountsOnce(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(8))
	l := b.lease("kart", 2, time.Hour)
	for range 3 {
		b.delivered(l, l.From, l.Cuts[0])
	}
	b.ledgerIs(partition.Ledger{Accepted: 8, Delivered: 4, Buffered: 4})
}

func aCommitElsewhereIsToldWhere(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(8))
	l := b.lease("kart", 2, time.Hour)
	b.delivered(l, l.From, l.Cuts[0])
	var elsewhere *partition.RangeError
	err := b.commit(&partition.Commit{Lease: l, Lo: l.From, Hi: l.To, Delivered: 8})
	if !errors.As(err, &elsewhere) || elsewhere.From != l.Cuts[0] {
		b.Fatalf("got %v, want a RangeError from %d", err, l.Cuts[0])
	}
	b.delivered(l, elsewhere.From, l.To)
	b.ledgerIs(partition.Ledger{Accepted: 8, Delivered: 8})
}

func aLapsedLeaseIsPresentedAgain(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(9))
	first := b.lease("kart", 2, 20*time.Millisecond)
	b.produce("kart", b.entries(1))
	for attempt := 2; attempt <= 4; attempt++ {
		again := b.lease("kart", 1, 20*time.Millisecond)
		b.same("the same range along the same cuts",
			[]any{again.From, again.To, again.Cuts, texts(again), again.Attempt},
			[]any{first.From, first.To, first.Cuts, texts(first), attempt})
	}
	b.ledgerIs(partition.Ledger{Accepted: 10, Buffered: 10})
}

func aReleaseWaits(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(4))
	l := b.lease("kart", 1, time.Hour)
	began := time.Now()
	b.is("release", b.release(&partition.Release{Lease: l, Delay: 200 * time.Millisecond, Attempt: 6}), nil)
	b.produce("kart", b.entries(4)) // a full batch does not cut the back-off short
	again := b.lease("kart", 1, time.Hour)
	if waited := time.Since(began); waited < 198*time.Millisecond {
		b.Errorf("waited %v, want 200ms", waited)
	}
	b.same("range and attempt", []any{again.From, texts(again), again.Attempt}, []any{l.From, "[1 2 3 4]", 7})
}

func anUnknownClaimIsReleased(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(4))
	ran, never := b.claim("kart", 1, time.Hour), partition.ClaimResult{ClaimRequest: partition.ClaimRequest{Namespace: b.ns, Partition: "kart", MaxBatches: 1}}
	claims := []partition.ClaimResult{ran, never}
	for i := range claims {
		claims[i].Err = fmt.Errorf("reply lost: %w", partition.ErrUnknown)
	}
	b.is("release of the unknown", b.store.ReleaseUnknown(b.Context(), claims), nil)
	l := b.claim("kart", 1, time.Hour).Lease
	if l == nil {
		b.Fatal("the partition waits for the lease to lapse")
	}
	b.same("attempt of a range nobody saw", l.Attempt, 1)
	b.is("commit of the released", b.commit(&partition.Commit{Lease: ran.Lease, Lo: l.From, Hi: l.To, Delivered: 4}), partition.ErrGone)
}

// A range that was presented three times has been so still, when the reply of
// the fourth claim was lost.
func releasingAnUnknownClaimKeepsTheAttempt(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(4))
	l := b.lease("kart", 1, time.Hour)
	b.is("release", b.release(&partition.Release{Lease: l, Attempt: 3}), nil)
	c := b.claim("kart", 1, time.Hour)
	c.Err = partition.ErrUnknown
	b.is("release of the unknown", b.store.ReleaseUnknown(b.Context(), []partition.ClaimResult{c}), nil)
	b.same("attempt", b.lease("kart", 1, time.Hour).Attempt, 4)
}

func atMostOnceLeasesToo(b *bench) {
	b.open(func(p *partition.Policy) { p.Delivery, p.Linger = partition.AtMostOnce, 0 })
	b.produce("kart", b.entries(6))
	l := b.lease("kart", 1, time.Hour)
	b.same("lease", []any{l.Token != "", l.Attempt, texts(l)}, []any{true, 1, "[1 2 3 4]"})
	b.ledgerIs(partition.Ledger{Accepted: 6, Buffered: 6})
	b.delivered(l, l.From, l.To) // right before the Write
	b.ledgerIs(partition.Ledger{Accepted: 6, Delivered: 4, Buffered: 2})
}

// What the sink took of a range is not presented again, and is delivered whatever
// becomes of it: here one is evicted and the others go stale.
func whatTheSinkTookIsDelivered(b *bench) {
	b.open(func(p *partition.Policy) { p.MaxAge, p.Linger = time.Hour, 0 })
	b.produce("kart", b.aged(10, time.Minute))
	l := b.lease("kart", 1, time.Hour)
	done := []bool{true, false, true, true}
	b.is("release", b.release(&partition.Release{Lease: l, Attempt: 1, Done: done}), nil)
	again := b.lease("kart", 1, time.Hour)
	b.same("presented again", []any{again.Attempt, again.Done, texts(again)}, []any{2, done, "[1 2 3 4]"})
	b.is("commit of the first", b.commit(&partition.Commit{Lease: again, Lo: again.From, Hi: again.From + 1, Delivered: 1}), nil)
	b.is("release of the rest", b.release(&partition.Release{Lease: again, Attempt: 2, Done: done}), nil)
	third := b.lease("kart", 1, time.Hour)
	b.same("presented a third time", []any{third.Attempt, third.Done, texts(third)}, []any{3, done[1:], "[2 3 4]"})
	b.is("release", b.release(&partition.Release{Lease: third, Attempt: 3, Done: done[1:]}), nil)
	b.produce("kart", b.aged(3, time.Minute)) // evicts one that was not taken and one that was
	b.ledgerIs(partition.Ledger{Accepted: 13, Delivered: 1, Evicted: 2, Buffered: 10})
	b.ns.Policy.MaxAge = time.Second // as another process has it, so all are stale
	b.same("expired", b.claim("kart", 1, time.Hour).Expired, 9)
	b.ledgerIs(partition.Ledger{Accepted: 13, Delivered: 3, Evicted: 1, Expired: 9})
}

func malformedEntriesExpire(b *bench) {
	b.open(nil)
	entries := b.entries(2)
	b.produce("kart", [][]byte{[]byte("garbage"), {}, entries[0], []byte("9999999999999?x"), entries[1]})
	c := b.claim("kart", 2, time.Hour)
	if c.Lease == nil {
		b.Fatal("no lease")
	}
	b.same("dropped from the old end", c.Expired, 2)
	var occurred []bool
	for _, e := range c.Lease.Entries {
		occurred = append(occurred, e.Occurred != 0)
	}
	b.same("entries with a time", occurred, []bool{true, false, true})
	b.same("bytes of the malformed one", string(c.Lease.Entries[1].Payload), "9999999999999?x")
	err := b.commit(&partition.Commit{Lease: c.Lease, Lo: c.Lease.From, Hi: c.Lease.To, Delivered: 2, Expired: 1})
	b.is("commit", err, nil)
	b.ledgerIs(partition.Ledger{Accepted: 5, Delivered: 2, Expired: 3})
	b.produce("kart", [][]byte{[]byte("garbage")})
	st, err := b.store.Stats(b.Context(), b.ns, "kart")
	b.same("stats of a malformed oldest entry", []any{st.Depth, st.OldestAge, err}, []any{1, time.Duration(0), nil})
}

func sequencesNeverRepeat(b *bench) {
	b.open(nil)
	next := int64(0)
	for range 20 {
		b.produce("kart", b.entries(8))
		l := b.lease("kart", 2, time.Hour)
		if l.From < next {
			b.Fatalf("sequence %d after %d", l.From, next)
		}
		next = l.To
		b.delivered(l, l.From, l.To)
		_, err := b.store.Stats(b.Context(), b.ns, "kart")
		b.is("the partition is empty", err, partition.ErrNoPartition)
	}
}
