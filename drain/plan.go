package drain

import (
	"sync"

	"github.com/spillway-io/spillway/partition"
)

// A unit is what goes into one Write: one batch, or several where the sink takes
// them together. A refused unit is split in two, down to a single entry.
type unit struct {
	spans []span
	split bool // part of one that was refused
}

// A span is a batch by the positions of its entries, [lo, hi). Those that have
// gone stale meanwhile are left out of the Write.
type span struct{ lo, hi int }

// plan cuts a lease into units of up to most batches, the first one last. first
// is how many entries the first unit may hold; 0 = as many as any other.
func plan(lease *partition.Lease, most, first int) []unit {
	var units []unit
	lo := 0
	if first > 0 && len(lease.Cuts) > 0 {
		lo = min(first, int(lease.Cuts[0]-lease.From))
		units = append(units, unit{spans: []span{{0, lo}}, split: true})
	}
	var joined []span
	for _, cut := range lease.Cuts {
		s := span{lo, int(cut - lease.From)}
		if lo = s.hi; s.lo < s.hi {
			joined = append(joined, s)
		}
		if len(joined) >= max(most, 1) {
			units = append(units, unit{spans: joined})
			joined = nil
		}
	}
	if len(joined) > 0 {
		units = append(units, unit{spans: joined})
	}
	for i, j := 0, len(units)-1; i < j; i, j = i+1, j-1 {
		units[i], units[j] = units[j], units[i]
	}
	return units
}

// bisect is a refused unit in two halves: of its batches while they are several,
// else of the entries that were in the Write.
func bisect(a attempt, from int64) (left, right unit) {
	spans := make([]span, len(a.batches))
	for i, b := range a.batches {
		last := len(b.Entries) - 1
		spans[i] = span{int(b.Entries[0].Seq - from), int(b.Entries[last].Seq-from) + 1}
	}
	if half := len(spans) / 2; half > 0 {
		return unit{spans[:half], true}, unit{spans[half:], true}
	}
	entries := a.batches[0].Entries
	mid := int(entries[len(entries)/2].Seq - from)
	return unit{[]span{{spans[0].lo, mid}}, true}, unit{[]span{{mid, spans[0].hi}}, true}
}

// mostNarrow bounds the memory of narrow. Forgetting costs a few Writes.
const mostNarrow = 1024

// narrow remembers where the search for a poison entry stood when its lease
// ended, so that the next lease goes on instead of starting over: with a slow
// sink it would never come to an end.
type narrow struct {
	mu     sync.Mutex
	places map[string]suspects // by partition
}

// suspects are the n entries from a sequence on, one of which is refused.
type suspects struct {
	from int64
	n    int
}

func (w *narrow) put(partition string, s suspects) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.places == nil {
		w.places = make(map[string]suspects)
	}
	for old := range w.places {
		if len(w.places) < mostNarrow {
			break
		}
		delete(w.places, old)
	}
	w.places[partition] = s
}

// take returns the number of suspects that a lease begins with, 0 for none, and
// forgets them.
func (w *narrow) take(lease *partition.Lease) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.places[lease.Partition]
	if !ok {
		return 0
	}
	delete(w.places, lease.Partition)
	if s.from != lease.From {
		return 0
	}
	return s.n
}
