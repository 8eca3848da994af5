package ingest

import "time"

// aheadTolerance is how far in the future a time without sent_at may lie before
// the device's clock is taken to be wrong.
const aheadTolerance = 5 * time.Second

// eventTimes are the times a request knows, Unix ms; sent and ts on the device's clock.
type eventTimes struct {
	received       int64 // on the store's clock
	sent, ts       int64
	hasSent, hasTS bool
}

// timeCheck is what to do with an entry because of its time.
type timeCheck int

const (
	timely   timeCheck = iota
	unskewed           // stamped on arrival: the device's clock cannot be believed
	stale              // already too old
)

// occurred says when an event happened, on the store's clock.
//
//	with sent_at      received - max(0, sent_at - ts): both are the device's, so its skew cancels
//	without           ts itself from max_age behind to 5 s ahead, never later than received;
//	                  any other ts means a wrong clock, and arrival is the better guess
//	without ts        received
func (s eventTimes) eventTime(maxAge time.Duration) (int64, timeCheck) {
	if !s.hasTS {
		return s.received, timely
	}
	oldest := s.received - maxAge.Milliseconds()
	if s.hasSent {
		at := s.received - max(0, s.sent-s.ts)
		if at < oldest {
			return at, stale
		}
		return at, timely
	}
	if s.ts < oldest || s.ts > s.received+aheadTolerance.Milliseconds() {
		return s.received, unskewed
	}
	return min(s.ts, s.received), timely
}
