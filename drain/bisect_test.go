package drain

import (
	"fmt"
	"testing"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
)

func TestBisectHalvesWhatWasWritten(t *testing.T) {
	t.Parallel()
	entries := leaseOf(20).Entries
	batch := func(seqs ...int) *sink.Batch {
		b := &sink.Batch{}
		for _, i := range seqs {
			b.Entries = append(b.Entries, entries[i])
		}
		return b
	}
	for name, c := range map[string]struct {
		batches []*sink.Batch
		want    string
	}{
		"two":            {[]*sink.Batch{batch(4, 5)}, "[{4 5}] [{5 6}]"},
		"three":          {[]*sink.Batch{batch(4, 5, 6)}, "[{4 5}] [{5 7}]"},
		"stale between":  {[]*sink.Batch{batch(4, 9, 10, 19)}, "[{4 10}] [{10 20}]"},
		"three batches":  {[]*sink.Batch{batch(0, 1), batch(5), batch(6, 8)}, "[{0 2}] [{5 6} {6 9}]"},
		"single entries": {[]*sink.Batch{batch(0), batch(5)}, "[{0 1}] [{5 6}]"},
	} {
		left, right := bisect(guard.Pending{Batches: c.batches}, 1000)
		if got := fmt.Sprint(left.spans, " ", right.spans); got != c.want || !left.split || !right.split {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestBisectMemoIsBoundedAndMeantForOneRange(t *testing.T) {
	t.Parallel()
	var m bisectMemo
	l := leaseOf(10)
	m.put("p", bisectRange{1000, 4})
	if got := m.take(l); got != 4 {
		t.Errorf("took %d", got)
	}
	if got := m.take(l); got != 0 {
		t.Errorf("took %d again", got)
	}
	m.put("p", bisectRange{999, 4})
	if got := m.take(l); got != 0 {
		t.Errorf("took %d of another range", got)
	}
	for i := range 3 * maxBisectMemo {
		m.put(fmt.Sprint(i), bisectRange{1, 1})
	}
	if len(m.ranges) > maxBisectMemo {
		t.Errorf("%d ranges", len(m.ranges))
	}
}
