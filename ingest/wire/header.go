package wire

import "bytes"

// DiscardReason says why a client discarded entries before it sent them.
type DiscardReason string

// The reasons that a client may report in X-Client-Discards. Unknown ones count
// as DiscardOther, so that a newer client can talk to an older server.
const (
	DiscardQueueOverflow    DiscardReason = "queue_overflow"
	DiscardStale            DiscardReason = "stale"
	DiscardTooLarge         DiscardReason = "too_large"
	DiscardRetriesExhausted DiscardReason = "retries_exhausted"
	DiscardShutdown         DiscardReason = "shutdown"
	DiscardOther            DiscardReason = "other"
)

// DiscardReasons lists them all.
func DiscardReasons() []DiscardReason {
	return []DiscardReason{
		DiscardQueueOverflow, DiscardStale, DiscardTooLarge,
		DiscardRetriesExhausted, DiscardShutdown, DiscardOther,
	}
}

// Discard is one term of X-Client-Discards.
type Discard struct {
	Reason DiscardReason
	Count  int64
}

// ParseDiscards reads "queue_overflow=23,stale=5": reasons of 1 to 32 letters
// a-z and underscores, counts of 1 to 9 digits, spaces allowed around a term.
func ParseDiscards(header []byte) (discards []Discard, ok bool) {
	for term := range bytes.SplitSeq(header, []byte{','}) {
		name, digits, found := bytes.Cut(bytes.TrimSpace(term), []byte{'='})
		count, isCount := ParseMillis(digits)
		if !found || !isCount || len(digits) > 9 || !validReason(name) {
			return nil, false
		}
		reason := DiscardOther
		for _, known := range DiscardReasons() {
			if string(name) == string(known) {
				reason = known
			}
		}
		discards = append(discards, Discard{reason, count})
	}
	return discards, true
}

func validReason(name []byte) bool {
	if len(name) == 0 || len(name) > 32 {
		return false
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && c != '_' {
			return false
		}
	}
	return true
}

// ValidIdempotencyKey reports whether key is 1 to 128 printable ASCII bytes.
func ValidIdempotencyKey(key []byte) bool {
	if len(key) == 0 || len(key) > 128 {
		return false
	}
	for _, c := range key {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// Prefers reports whether a Prefer header has a preference, such as return=minimal.
func Prefers(prefer []byte, preference string) bool {
	for item := range bytes.SplitSeq(prefer, []byte{','}) {
		token, _, _ := bytes.Cut(item, []byte{';'})
		if bytes.EqualFold(bytes.TrimSpace(token), []byte(preference)) {
			return true
		}
	}
	return false
}
