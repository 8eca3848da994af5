package drain

import "math/rand/v2"

// maxHistory bounds either list of a writeHistory, at about 2 MB. Forgetting a
// partition that fails lets it help to trip the breaker once more.
const maxHistory = 8192

// A writeHistory is how the last Write of each partition of a namespace ended. It
// tells a sink that is dead from one that fails on some partitions, however many and
// however often: those are known.
type writeHistory struct{ failing, ok map[string]struct{} }

func newWriteHistory() writeHistory {
	return writeHistory{failing: make(map[string]struct{}), ok: make(map[string]struct{})}
}

func (h writeHistory) answered(partition string) {
	delete(h.failing, partition)
	remember(h.ok, partition)
}

// failed notes a failed Write, and reports whether the partition was not failing before.
func (h writeHistory) failed(partition string) (newly bool) {
	delete(h.ok, partition)
	return remember(h.failing, partition)
}

// remember adds a partition to a list. A full list forgets any other for it.
func remember(list map[string]struct{}, partition string) (added bool) {
	if _, ok := list[partition]; ok {
		return false
	}
	for old := range list {
		if len(list) < maxHistory {
			break
		}
		delete(list, old)
	}
	list[partition] = struct{}{}
	return true
}

// likeliest are up to n partitions whose Writes are the likeliest to be answered:
// those that were answered last time, then those not known to fail, then the others
// in order. Those not known to fail are chosen at random, so the order of names
// cannot hide a healthy one.
func (h writeHistory) likeliest(names []string, n int) []string {
	var ok, unknown, failing []string
	for _, name := range names {
		if _, known := h.ok[name]; known {
			ok = append(ok, name)
		} else if _, known := h.failing[name]; known {
			failing = append(failing, name)
		} else {
			unknown = append(unknown, name)
		}
	}
	rand.Shuffle(len(unknown), func(i, j int) { unknown[i], unknown[j] = unknown[j], unknown[i] })
	list := append(append(ok, unknown...), failing...)
	return list[:min(n, len(list))]
}
