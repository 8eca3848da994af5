package drain

import "time"

const (
	// convicted is from how many strikes on a partition is written alone. Failing alone
	// gives as many at once, failing in company one, up to the last but one.
	// With lastCompany it is written alone to find out.
	convicted   = 4
	lastCompany = convicted - 1
	maxStrikes  = 2 * convicted
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
// company, the smaller the more of it fails, until the cause is alone. Forgetting
// them costs a few Writes.
type suspects struct {
	strikes   map[string]int // by partition
	size, max int            // members of a Write of suspects
}

func newSuspects(maxSize int) suspects {
	return suspects{strikes: make(map[string]int), size: min(firstSuspects, maxSize), max: maxSize}
}

// accuse notes that a Write of the members failed. Only one that failed alone is
// convicted: many failures in company may all be another's.
func (s *suspects) accuse(group []*member) {
	for _, m := range group {
		switch before := s.strikes[m.Partition]; {
		case m.Alone:
		case len(group) == 1:
			s.strike(m.Partition, convicted)
		case before < lastCompany:
			s.strike(m.Partition, 1)
		}
	}
}

func (s *suspects) strike(partition string, n int) {
	for old := range s.strikes {
		if len(s.strikes) < maxSuspects {
			break
		}
		delete(s.strikes, old)
	}
	s.strikes[partition] = min(s.strikes[partition]+n, maxStrikes)
}

// acquit notes that a partition's Write was accepted: a strike less. So one that
// fails now and then stays apart.
func (s *suspects) acquit(m *member) {
	n, known := s.strikes[m.Partition]
	switch {
	case !known || m.Alone:
	case n > 1:
		s.strikes[m.Partition] = n - 1
	default:
		delete(s.strikes, m.Partition)
	}
}

// grow and shrink learn how many suspects to write together next.
func (s *suspects) grow(n int)   { s.size = min(max(s.size, suspectFactor*n), s.max) }
func (s *suspects) shrink(n int) { s.size = max(1, n/suspectFactor) }

// clear forgets them all: a sink that answers nothing says nothing about partitions.
func (s *suspects) clear() { clear(s.strikes) }
