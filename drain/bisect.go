package drain

import (
	"sync"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition"
)

// bisect is a rejected unit in two halves: of its batches while they are several,
// else of the entries that were in the Write.
func bisect(p guard.Pending, from int64) (left, right writeUnit) {
	spans := make([]span, len(p.Batches))
	for i, b := range p.Batches {
		last := len(b.Entries) - 1
		spans[i] = span{int(b.Entries[0].Seq - from), int(b.Entries[last].Seq-from) + 1}
	}
	if half := len(spans) / 2; half > 0 {
		return writeUnit{spans[:half], true}, writeUnit{spans[half:], true}
	}
	entries := p.Batches[0].Entries
	mid := int(entries[len(entries)/2].Seq - from)
	return writeUnit{[]span{{spans[0].lo, mid}}, true}, writeUnit{[]span{{mid, spans[0].hi}}, true}
}

// maxBisectMemo bounds the memory of a bisectMemo. Forgetting costs a few Writes.
const maxBisectMemo = 1024

// A bisectMemo remembers how far the search for a poison entry had come when its
// lease ended, so that the next lease goes on instead of starting over: with a slow
// sink the search would never end.
type bisectMemo struct {
	mu     sync.Mutex
	ranges map[string]bisectRange // by partition
}

// A bisectRange is the n entries from a sequence on, one of which is rejected.
type bisectRange struct {
	from int64
	n    int
}

func (m *bisectMemo) put(partition string, r bisectRange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ranges == nil {
		m.ranges = make(map[string]bisectRange)
	}
	guard.Remember(m.ranges, maxBisectMemo, partition, r)
}

// take returns how many entries of a lease the search begins with, 0 for no search,
// and forgets them.
func (m *bisectMemo) take(lease *partition.Lease) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.ranges[lease.Partition]
	if !ok {
		return 0
	}
	delete(m.ranges, lease.Partition)
	if r.from != lease.From {
		return 0
	}
	return r.n
}
