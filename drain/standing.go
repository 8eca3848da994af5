package drain

import "math/rand/v2"

// mostKnown bounds either list of a standing, at about 2 MB. Forgetting a
// partition that fails lets it help to trip the breaker once more.
const mostKnown = 8192

// A standing is how the Writes of a namespace's partitions ended last. It tells
// a sink that is dead from one that fails on some partitions, however many and
// however often: those are known.
type standing struct{ sick, well map[string]struct{} }

func newStanding() standing {
	return standing{sick: make(map[string]struct{}), well: make(map[string]struct{})}
}

func (s standing) answered(partition string) {
	delete(s.sick, partition)
	enter(s.well, partition)
}

// failed reports whether the partition was not known to fail.
func (s standing) failed(partition string) (newly bool) {
	delete(s.well, partition)
	return enter(s.sick, partition)
}

// enter adds a partition to a list, for which any other may have to go.
func enter(list map[string]struct{}, partition string) (added bool) {
	if _, ok := list[partition]; ok {
		return false
	}
	for old := range list {
		if len(list) < mostKnown {
			break
		}
		delete(list, old)
	}
	list[partition] = struct{}{}
	return true
}

// healthiest is the partition whose Write is the likeliest to be answered: the
// first that was answered last time, else any not known to fail, by chance lest
// an order of the names hides the one, else the first.
func (s standing) healthiest(names []string) string {
	var unknown []string
	for _, name := range names {
		if _, ok := s.well[name]; ok {
			return name
		}
		if _, ok := s.sick[name]; !ok {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return unknown[rand.IntN(len(unknown))]
	}
	return names[0]
}
