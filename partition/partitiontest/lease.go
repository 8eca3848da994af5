package partitiontest

import (
	"errors"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/partition"
)

func aFullBatchIsDueNow(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(3))
	b.same("not before", b.claim("kart", 1, time.Hour).Lease == nil, true)
	b.produce("kart", b.entries(1))
	c := b.claim("kart", 1, time.Hour)
	if c.Lease == nil {
		b.Fatal("a full batch is not due")
	}
	b.same("batch", payloads(c.Lease), "[1 2 3 4]")
	b.produce("born-full", b.entries(4))
	b.same("at birth", b.claim("born-full", 1, time.Hour).Lease != nil, true)
}

func lessThanABatchLingers(b *bench) {
	b.open(func(p *partition.Policy) { p.Linger = 300 * time.Millisecond })
	began := time.Now()
	b.produce("kart", b.entries(1))
	b.same("at once", b.claim("kart", 1, time.Hour).Lease == nil, true)
	b.produce("kart", b.entries(1)) // does not postpone it
	l := b.lease("kart", 1, time.Hour)
	if waited := time.Since(began); waited < 260*time.Millisecond || waited > 5*time.Second {
		b.Errorf("waited %v, want seven eighths of 300ms at least", waited)
	}
	b.same("batch", payloads(l), "[1 2]")
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
	b.same("the next batch", []any{next.From, payloads(next), next.Token != l.Token}, []any{l.To, "[5 6 7 8]", true})
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
			[]any{again.From, again.To, again.Cuts, payloads(again), again.Attempt},
			[]any{first.From, first.To, first.Cuts, payloads(first), attempt})
	}
	b.ledgerIs(partition.Ledger{Accepted: 10, Buffered: 10})
}

func aReleaseWaits(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(4))
	l := b.lease("kart", 1, time.Hour)
	began := time.Now()
	b.is("release", b.release(&partition.Release{Lease: l, Delay: 200 * time.Millisecond, Attempt: 6}), nil)
	b.same("at once", b.claim("kart", 1, time.Hour).Lease == nil, true)
	b.produce("kart", b.entries(4)) // a full batch does not cut the back-off short
	b.same("with a full batch more", b.claim("kart", 1, time.Hour).Lease == nil, true)
	again := b.lease("kart", 1, time.Hour)
	if waited := time.Since(began); waited < 198*time.Millisecond || waited > 5*time.Second {
		b.Errorf("waited %v, want 200ms", waited)
	}
	b.same("range and attempt", []any{again.From, payloads(again), again.Attempt}, []any{l.From, "[1 2 3 4]", 7})
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

func evictedWhileLeasedIsReclaimed(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(10))
	l := b.lease("kart", 2, time.Hour)
	b.same("evicted", b.produce("kart", b.entries(6)).Evicted, 6)
	b.ledgerIs(partition.Ledger{Accepted: 16, Evicted: 6, Buffered: 10})
	b.delivered(l, l.From, l.Cuts[0])
	b.ledgerIs(partition.Ledger{Accepted: 16, Delivered: 4, Evicted: 2, Buffered: 10})
	b.delivered(l, l.Cuts[0], l.To)
	b.ledgerIs(partition.Ledger{Accepted: 16, Delivered: 8, Buffered: 8})
	o, err := b.store.Overview(b.Context(), b.ns)
	b.is("overview", err, nil)
	b.same("reclaimed", o.Reclaimed, 6)
	b.same("what is left", payloads(b.lease("kart", 9, time.Hour)), "[9 10 11 12 13 14 15 16]")
}

func atMostOnceLeasesToo(b *bench) {
	b.open(func(p *partition.Policy) { p.Delivery, p.Linger = partition.AtMostOnce, 0 })
	b.produce("kart", b.entries(6))
	l := b.lease("kart", 1, time.Hour)
	b.same("lease", []any{l.Token != "", l.Attempt, payloads(l)}, []any{true, 1, "[1 2 3 4]"})
	b.ledgerIs(partition.Ledger{Accepted: 6, Buffered: 6})
	b.delivered(l, l.From, l.To) // right before the Write
	b.ledgerIs(partition.Ledger{Accepted: 6, Delivered: 4, Buffered: 2})
}

// What the sink took of a range is not presented again, and is delivered whatever
// becomes of it: here one is evicted and the others go stale.
func whatTheSinkTookIsDelivered(b *bench) {
	b.open(func(p *partition.Policy) { p.MaxAge, p.Linger = 2*time.Second, 0 })
	b.produce("kart", b.entries(10))
	l := b.lease("kart", 1, time.Hour)
	done := []bool{true, false, true, true}
	b.is("release", b.release(&partition.Release{Lease: l, Attempt: 1, Done: done}), nil)
	again := b.lease("kart", 1, time.Hour)
	b.same("presented again", []any{again.Attempt, again.Done, payloads(again)}, []any{2, done, "[1 2 3 4]"})
	b.is("commit of the first", b.commit(&partition.Commit{Lease: again, Lo: again.From, Hi: again.From + 1, Delivered: 1}), nil)
	b.is("release of the rest", b.release(&partition.Release{Lease: again, Attempt: 2, Done: done}), nil)
	third := b.lease("kart", 1, time.Hour)
	b.same("presented a third time", []any{third.Attempt, third.Done, payloads(third)}, []any{3, done[1:], "[2 3 4]"})
	b.is("release", b.release(&partition.Release{Lease: third, Attempt: 3, Done: done[1:]}), nil)
	b.produce("kart", b.entries(3)) // evicts one that was not taken and one that was
	b.ledgerIs(partition.Ledger{Accepted: 13, Delivered: 1, Evicted: 2, Buffered: 10})
	b.pass(2100)
	b.same("expired", b.claim("kart", 1, time.Hour).Expired, 10)
	b.ledgerIs(partition.Ledger{Accepted: 13, Delivered: 3, Evicted: 1, Expired: 9})
}

func nothingStaleIsLeased(b *bench) {
	b.open(func(p *partition.Policy) { p.MaxAge, p.Linger = time.Minute, 0 })
	b.produce("kart", b.aged(4, time.Minute+time.Second))
	b.produce("kart", b.entries(2))
	c := b.claim("kart", 1, time.Hour)
	if c.Lease == nil {
		b.Fatal("no lease")
	}
	b.same("claim", []any{c.Expired, payloads(c.Lease)}, []any{4, "[5 6]"})
	b.produce("old", b.aged(4, time.Hour))
	c = b.claim("old", 1, time.Hour)
	b.same("all stale", []any{c.Expired, c.Lease == nil}, []any{4, true})
	b.ledgerIs(partition.Ledger{Accepted: 10, Expired: 8, Buffered: 2})
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
