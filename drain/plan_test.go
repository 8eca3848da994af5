package drain

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-io/spillway/partition"
)

// lease is one of n entries, cut behind the given positions.
func leaseOf(cuts ...int) *partition.Lease {
	l := &partition.Lease{Partition: "p", From: 1000, To: 1000}
	for _, cut := range cuts {
		l.To = 1000 + int64(cut)
		l.Cuts = append(l.Cuts, l.To)
	}
	for seq := l.From; seq < l.To; seq++ {
		l.Entries = append(l.Entries, partition.Entry{Seq: seq})
	}
	return l
}

func TestPlanCoversTheLeaseOnceInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var cuts []int
		end := 0
		for range rapid.IntRange(1, 8).Draw(rt, "batches") {
			end += rapid.IntRange(1, 128).Draw(rt, "entries")
			cuts = append(cuts, end)
		}
		together := rapid.IntRange(0, 4).Draw(rt, "together")
		first := rapid.IntRange(0, 200).Draw(rt, "first")
		units := plan(leaseOf(cuts...), together, 0, first)
		at := 0
		for i := len(units) - 1; i >= 0; i-- {
			if n := len(units[i].spans); n < 1 || n > max(together, 1) {
				rt.Fatalf("a unit of %d batches", n)
			}
			for _, s := range units[i].spans {
				if s.lo != at || s.hi <= s.lo || s.hi-s.lo > 128 {
					rt.Fatalf("span %v at %d", s, at)
				}
				at = s.hi
			}
		}
		if at != end {
			rt.Fatalf("covers %d of %d", at, end)
		}
		if got := units[len(units)-1]; first > 0 && (len(got.spans) != 1 || got.spans[0].hi != min(first, cuts[0]) || !got.split) {
			rt.Fatalf("begins with %v, want the first %d", got, first)
		}
	})
}

func TestAccountSettlesPrefixesAndAnyRangeTheStoreAsksFor(t *testing.T) {
	t.Parallel()
	a := newAccount(leaseOf(6))
	if a.commit() != nil {
		t.Error("a commit of nothing")
	}
	a.mark(0, delivered)
	a.mark(1, expired)
	a.deadLetter(2, deadLetter{line: []byte("letter")})
	a.mark(4, delivered) // behind a gap
	s := a.commit()
	if s.Lo != 1000 || s.Hi != 1003 || s.Delivered != 1 || s.Expired != 1 || s.Dead != 1 || string(s.DeadLetters[0]) != "letter" {
		t.Errorf("commit %+v", s)
	}
	if !a.startAt(1002) {
		t.Fatal("the store may start within the range")
	}
	if s = a.commit(); s.Lo != 1002 || s.Hi != 1003 || s.Dead != 1 || s.Delivered+s.Expired != 0 {
		t.Errorf("commit %+v", s)
	}
	if !a.startAt(1000) {
		t.Fatal("a store that lost its newest writes starts before")
	}
	if s = a.commit(); s.Lo != 1000 || s.Hi != 1003 {
		t.Errorf("commit %+v", s)
	}
	for _, seq := range []int64{999, 1000, 1007} {
		if a.startAt(seq) {
			t.Errorf("starts at %d: outside of the range, or where the rejected commit began", seq)
		}
	}
	if r := a.release(); r.Lease != a.lease || !slices.Equal(r.Done, []bool{true, false, false, false, true, false}) {
		t.Errorf("release %+v", r)
	}
	if !a.startAt(1004) {
		t.Fatal("entries without a class may be removed")
	}
	if s = a.commit(); s.Lo != 1004 || s.Hi != 1005 || s.Delivered != 1 {
		t.Errorf("commit %+v", s)
	}
	if !a.startAt(1006) || a.commit() != nil {
		t.Error("all of the rest may be removed")
	}
	if r := a.release(); r.Lease != a.lease || r.Done != nil {
		t.Errorf("release %+v", r)
	}
	if !a.startAt(1002) {
		t.Fatal("what was removed may come back")
	}
	if s = a.commit(); s.Lo != 1002 || s.Hi != 1003 {
		t.Errorf("commit %+v: 1003 has no class", s)
	}
}
