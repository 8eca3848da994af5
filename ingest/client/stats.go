package spillway

import (
	"maps"
	"strconv"
	"strings"
)

// Reason says why an entry was dropped. The list only grows.
type Reason string

const (
	// QueueOverflow: newer entries took its place.
	QueueOverflow Reason = "queue_overflow"
	// Stale: it got older than ReporterConfig.MaxAge before the service had it.
	Stale Reason = "stale"
	// TooLarge: its payload is larger than ReporterConfig.MaxEntry.
	TooLarge Reason = "too_large"
	// RetriesExhausted: its request was answered ReporterConfig.Attempts times by an error that stays.
	RetriesExhausted Reason = "retries_exhausted"
	// Shutdown: it was reported after Close, or Close had no time left for it.
	Shutdown Reason = "shutdown"
	// Rejected: the service rejected it, and would again.
	Rejected Reason = "rejected"
	// Unknown: an attempt may have stored it, and none can follow, because the service does not
	// remember longer what it stored.
	Unknown Reason = "unknown"
	// Invalid: its partition or id is none, by the service's rules.
	Invalid Reason = "invalid"
)

// Stats counts entries since New. Reported = Acked + Pending + the sum of Dropped,
// in every copy.
type Stats struct {
	Reported int64            // calls of Report and ReportEvent
	Acked    int64            // the service has stored them
	Pending  int64            // waiting or on their way
	Dropped  map[Reason]int64 // the others
}

// Stats returns the counts as they are now.
func (r *Reporter) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{r.reported, r.acked, r.pending(), maps.Clone(r.dropped)}
}

// pending is called with the lock held.
func (r *Reporter) pending() int64 {
	n := r.reported - r.acked
	for _, dropped := range r.dropped {
		n -= dropped
	}
	return n
}

// drop counts entries as dropped. It is called with the lock held.
func (r *Reporter) drop(why Reason, n int64) {
	if n == 0 {
		return
	}
	r.dropped[why] += n
	if why != Rejected { // the service knows those
		r.untold[why] += n
	}
	r.notices.dropped(why, n)
}

// discards are drops that the service has not been told of. Where an answer is lost it is
// told of them again: it hears of each drop at least once.
type discards map[Reason]int64

// header is the value of X-Client-Discards.
func (d discards) header() string {
	var b strings.Builder
	for why, n := range d {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		if why == Invalid {
			why = "other"
		}
		b.WriteString(string(why) + "=" + strconv.FormatInt(n, 10))
	}
	return b.String()
}

// maxDiscards is the largest count that the header may say.
const maxDiscards = 999_999_999

// tell takes the drops that the service has not been told of, to be told now.
func (r *Reporter) tell() discards {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.untold) == 0 {
		return nil
	}
	told := make(discards, len(r.untold))
	for why, n := range r.untold {
		told[why] = min(n, maxDiscards)
		if n -= told[why]; n == 0 {
			delete(r.untold, why)
		} else {
			r.untold[why] = n
		}
	}
	return told
}

// untell takes that back: the service did not hear it, or nobody knows.
func (r *Reporter) untell(told discards) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for why, n := range told {
		r.untold[why] += n
	}
}
