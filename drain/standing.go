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

// healthiest are up to n partitions whose Writes are the likeliest to be answered:
// those that were answered last time, then those not known to fail, picked at
// random so that no order of names hides a healthy one, then the others in order.
func (s standing) healthiest(names []string, n int) []string {
	var well, unknown, sick []string
	for _, name := range names {
		if _, ok := s.well[name]; ok {
			well = append(well, name)
		} else if _, ok := s.sick[name]; ok {
			sick = append(sick, name)
		} else {
			unknown = append(unknown, name)
		}
	}
	rand.Shuffle(len(unknown), func(i, j int) { unknown[i], unknown[j] = unknown[j], unknown[i] })
	list := append(append(well, unknown...), sick...)
	return list[:min(n, len(list))]
}
