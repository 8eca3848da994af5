package guard

import (
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxHistory bounds either list of a writeHistory, at about 2 MB, and the words of those
// that fail at about as much. Forgetting a
// partition that fails lets it help to trip the breaker once more.
const MaxHistory = 8192

// A writeHistory is how the last Write of each partition of a namespace ended. It
// tells a sink that is dead from one that fails on some partitions, however many and
// however often: those are known.
type writeHistory struct {
	failing map[string]*partitionFailure
	ok      map[string]struct{}
	last    *partitionFailure // the latest one, of any partition
}

// A partitionFailure is what the last Write of a partition failed with. Partitions of
// one Write share it, and Writes in a row that fail for the same reason share words.
type partitionFailure struct {
	words string
	at    time.Time
}

func newWriteHistory() *writeHistory {
	return &writeHistory{failing: make(map[string]*partitionFailure), ok: make(map[string]struct{})}
}

func (h *writeHistory) answered(partition string) {
	delete(h.failing, partition)
	Remember(h.ok, MaxHistory, partition, struct{}{})
}

// failed notes a failed Write, and reports whether the partition was not failing before.
func (h *writeHistory) failed(partition string, f *partitionFailure) (newly bool) {
	delete(h.ok, partition)
	return Remember(h.failing, MaxHistory, partition, f)
}

// failureOf is the failure of a Write that ends now.
func (h *writeHistory) failureOf(err error) *partitionFailure {
	f := &partitionFailure{words: WordsOf(err), at: time.Now()}
	if h.last != nil && h.last.words == f.words {
		f.words = h.last.words
	}
	h.last = f
	return f
}

// maxWords bounds what is kept of the words of an error, in bytes.
const maxWords = 300

// WordsOf is the text of an error of a sink, which sinks keep free of payloads and
// secrets.
func WordsOf(err error) string {
	if err == nil {
		return ""
	}
	text := strings.ToValidUTF8(err.Error(), "?")
	if len(text) <= maxWords {
		return text
	}
	end := maxWords
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.Clone(text[:end]) + "…"
}

// Remember adds a partition to a list of most at most. A full one forgets any other for it.
func Remember[T any](list map[string]T, most int, partition string, what T) (added bool) {
	if _, ok := list[partition]; ok {
		list[partition] = what
		return false
	}
	for old := range list {
		if len(list) < most {
			break
		}
		delete(list, old)
	}
	list[partition] = what
	return true
}

// likeliest are up to n partitions whose Writes are the likeliest to be answered:
// those that were answered last time, then those not known to fail, then the others
// in order. Those not known to fail are chosen at random, so the order of names
// cannot hide a healthy one.
func (h *writeHistory) likeliest(names []string, n int) []string {
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
