package drops

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-io/spillway/partition/clocktest"
)

func TestTotalsAreExactAndSamplesBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := NewLog()
		n := l.Of("game")
		asked := 0
		for i := range 1000 {
			if n.CountOne(Evicted, 3) {
				asked++
				n.Record(Drop{Reason: Evicted, Partition: fmt.Sprint("p", i), Entries: 3})
			}
		}
		if asked != ringSize {
			t.Errorf("%d samples of a burst, not %d", asked, ringSize)
		}
		if got := l.Totals("game")[Evicted]; got != (Total{3000, ringSize}) {
			t.Errorf("totals %+v", got)
		}
		if n.Open(Evicted) || !n.Open(Expired) {
			t.Error("a reason that is used up is open, or another is not")
		}
		clocktest.Pass(5 * sampleEvery)
		if !n.Open(Evicted) {
			t.Error("the allowance does not come back")
		}
		if got := n.Count(Evicted, 50, 50); got != 5 {
			t.Errorf("%d samples after five times 10 ms", got)
		}
		clocktest.Pass(time.Hour)
		if got := n.Count(Evicted, 5000, 5000); got != ringSize {
			t.Errorf("%d samples after an hour: the allowance is %d", got, ringSize)
		}
	})
}

// While a flood of samples that name nothing goes on, those that name an entry are kept.
func TestSamplesThatNameNothingLeaveRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := NewLog().Of("game")
		count := func(f func(Reason, int) bool) (granted int) {
			for range 1000 {
				if f(Evicted, 1) {
					granted++
				}
			}
			return granted
		}
		unnamed, named := count(n.CountOneUnnamed), count(n.CountOne)
		if unnamed != ringSize/2 || named != ringSize/2 {
			t.Errorf("%d and %d samples of a burst", unnamed, named)
		}
		clocktest.Pass(5 * sampleEvery)
		if unnamed, named = count(n.CountOneUnnamed), count(n.CountOne); unnamed != 0 || named != 5 {
			t.Errorf("%d and %d samples after five times 10 ms", unnamed, named)
		}
	})
}

// Otherwise nothing would be sampled until the clock is where it was.
func TestAClockThatIsSetBackLeavesTheAllowance(t *testing.T) {
	t.Parallel()
	n := NewLog().Of("game")
	n.rings[Stale].paid.Store(time.Now().Add(time.Hour).UnixNano())
	if !n.Open(Stale) || n.Count(Stale, 1000, 1000) != ringSize || n.CountOne(Stale, 1) {
		t.Errorf("%+v: want a burst of %d samples", n.rings[Stale], ringSize)
	}
}

func TestTheNewestSamplesStay(t *testing.T) {
	t.Parallel()
	l := NewLog()
	n := l.Of("game")
	start := time.UnixMilli(1_700_000_000_000)
	for i := range 3 * ringSize {
		n.Record(Drop{Reason: Stale, At: start.Add(time.Duration(i) * time.Second), ID: fmt.Sprint(i)})
	}
	n.Record(Drop{Reason: Dead, At: start, ID: "1", Partition: "p"})
	list := l.Recent(Query{Reason: Stale, Limit: 2})
	if len(list) != 2 || list[0].ID != fmt.Sprint(3*ringSize-1) || list[1].ID != fmt.Sprint(3*ringSize-2) {
		t.Errorf("newest first: %+v", list)
	}
	if n := len(l.Recent(Query{Namespace: "game"})); n != ringSize+1 {
		t.Errorf("%d samples", n)
	}
	if list := l.Recent(Query{ID: "1", Partition: "p"}); len(list) != 1 || list[0].Reason != Dead || list[0].Namespace != "game" {
		t.Errorf("by id and partition: %+v", list)
	}
	if n := len(l.Recent(Query{Namespace: "other"})); n != 0 {
		t.Errorf("%d samples of another namespace", n)
	}
}

func TestNamespacesBeyondTheBoundShareTheirRings(t *testing.T) {
	t.Parallel()
	l := NewLog()
	for i := range 3 * maxNamespaces {
		name := fmt.Sprint("n", i)
		if l.Of(name).CountOne(Lost, 1) {
			l.Of(name).Record(Drop{Reason: Lost, Entries: 1})
		}
	}
	if got := l.Totals("")[Lost].Entries; got != 3*maxNamespaces {
		t.Errorf("%d entries in all", got)
	}
	if got := l.Recent(Query{Namespace: fmt.Sprint("n", 2*maxNamespaces)}); len(got) != 1 {
		t.Errorf("samples of a namespace beyond the bound: %+v", got)
	}
	if got := l.Totals("n0")[Lost].Entries; got != 1 {
		t.Errorf("%d entries of a namespace with rings of its own", got)
	}
}

func TestLongTextIsCut(t *testing.T) {
	t.Parallel()
	l := NewLog()
	l.Of("n").Record(Drop{Reason: Dead, Partition: strings.Repeat("p", 1000), Detail: strings.Repeat("ö", 1000)})
	d := l.Recent(Query{})[0]
	if len(d.Partition) != maxName || len(d.Detail) != maxDetail || strings.ToValidUTF8(d.Detail, "") != d.Detail {
		t.Errorf("%d bytes of a name and %d of a detail", len(d.Partition), len(d.Detail))
	}
}

func TestANilLogKeepsNothing(t *testing.T) {
	t.Parallel()
	var l *Log
	n := l.Of("n")
	n.Record(Drop{Reason: Dead})
	if n.Count(Dead, 1, 1) != 0 || n.CountOne(Dead, 1) || n.Open(Dead) || len(l.Recent(Query{})) != 0 || len(l.Totals("")) != 0 || len(l.Totals("n")) != 0 {
		t.Error("it keeps something")
	}
}

func TestUnknownReasonsAreIgnored(t *testing.T) {
	t.Parallel()
	l := NewLog()
	n := l.Of("n")
	n.Record(Drop{Reason: "made up"})
	if n.Count("made up", 1, 1) != 0 || len(l.Recent(Query{})) != 0 {
		t.Error("it counts")
	}
}

func TestRejections(t *testing.T) {
	t.Parallel()
	for r, want := range map[Reason]bool{Purged: false, Evicted: false, Stale: true, Unknown: true, ClientDiscarded: false, "other": false} {
		if r.Rejection() != want {
			t.Errorf("%s: %v", r, !want)
		}
	}
}

func TestALogIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	l := NewLog()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			n := l.Of(fmt.Sprint(i % 3))
			for range 200 {
				for range n.Count(Expired, 2, 2) {
					n.Record(Drop{Reason: Expired, Entries: 1})
				}
				l.Recent(Query{Limit: 5})
				l.Totals("")
			}
		})
	}
	wg.Wait()
	if got := l.Totals("")[Expired].Entries; got != 8*200*2 {
		t.Errorf("%d entries", got)
	}
}

func TestEachNamespaceHasItsOwnTotals(t *testing.T) {
	t.Parallel()
	l := NewLog()
	for i := range 2 * maxNamespaces {
		name := fmt.Sprintf("ns%d", i)
		if l.Of(name).CountOne(TooLarge, i+1) {
			l.Of(name).Record(Drop{Reason: TooLarge, Entries: i + 1})
		}
	}
	for i := range 2 * maxNamespaces {
		if got := l.Totals(fmt.Sprintf("ns%d", i))[TooLarge].Entries; got != int64(i+1) {
			t.Errorf("namespace %d: %d entries, want %d", i, got, i+1)
		}
	}
	all := l.Totals("")[TooLarge]
	if want := (Total{maxNamespaces * (2*maxNamespaces + 1), 2 * maxNamespaces}); all != want {
		t.Errorf("all: %+v, want %+v", all, want)
	}
	if got := len(l.Recent(Query{})); got != 2*maxNamespaces {
		t.Errorf("%d samples", got)
	}
}
