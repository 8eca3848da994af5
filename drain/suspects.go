package drain

import (
	"time"

	"github.com/spillway-io/spillway/drain/guard"
)

const (
	// aloneFrom is from how many failures on a partition is written alone. A failed Write
	// alone counts as that many, one together with others as one, up to lastTogether: with
	// that many it is written alone to find out.
	aloneFrom    = 4
	lastTogether = aloneFrom - 1
	maxFailures  = 2 * aloneFrom
	// maxSuspects bounds the memory of suspects, at about 4 MB.
	maxSuspects = 32_768
	// firstSuspects is how many suspects are written together to begin with. A Write
	// that is answered multiplies it by suspectFactor, one that fails divides it.
	firstSuspects = 256
	suspectFactor = 4
	// A Write of suspects gets suspectTime times as long as Writes take at present, and
	// minSuspectTime at least: where the cause is that the sink hangs, finding it must
	// not take a sink timeout a step. One that failed alone gets all of the timeout.
	suspectTime    = 8
	minSuspectTime = 250 * time.Millisecond
)

// suspects are the partitions whose Writes failed without the sink naming an entry,
// so that each of the group may be the cause. They are written again in smaller
// groups, the smaller the more of them fail, until the cause is alone. Forgetting
// them costs a few Writes.
type suspects struct {
	failures  map[string]int // by partition
	size, max int            // members of a Write of suspects
}

func newSuspects(maxSize int) suspects {
	return suspects{failures: make(map[string]int), size: min(firstSuspects, maxSize), max: maxSize}
}

// failed notes that a Write of the members failed. Only one that failed alone stays alone:
// many failures together with others may all be another's.
func (s *suspects) failed(group []*member) {
	for _, m := range group {
		switch before := s.failures[m.Partition]; {
		case m.Alone:
		case len(group) == 1:
			s.add(m.Partition, aloneFrom)
		case before < lastTogether:
			s.add(m.Partition, 1)
		}
	}
}

func (s *suspects) add(partition string, n int) {
	guard.Remember(s.failures, maxSuspects, partition, min(s.failures[partition]+n, maxFailures))
}

// succeeded notes that a partition's Write was accepted: a failure less. So one that
// fails now and then stays apart.
func (s *suspects) succeeded(m *member) {
	n, known := s.failures[m.Partition]
	switch {
	case !known || m.Alone:
	case n > 1:
		s.failures[m.Partition] = n - 1
	default:
		delete(s.failures, m.Partition)
	}
}

// grow and shrink learn how many suspects to write together next.
func (s *suspects) grow(n int)   { s.size = min(max(s.size, suspectFactor*n), s.max) }
func (s *suspects) shrink(n int) { s.size = max(1, n/suspectFactor) }

// clear forgets them all: a sink that answers nothing says nothing about partitions.
func (s *suspects) clear() { clear(s.failures) }
