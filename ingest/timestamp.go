package ingest

import "time"

// aheadTolerance is how far in the future a time without sent_at may be. Beyond
// it, the clock of the device counts as wrong.
const aheadTolerance = 5 * time.Second

// eventTimes are the times of an entry in Unix ms; sent and ts on the clock of the
// device.
type eventTimes struct {
	received       int64 // on the store's clock
	sent, ts       int64
	hasSent, hasTS bool
}

// timeCheck is the result of checking the time of an entry.
type timeCheck int

const (
	timely   timeCheck = iota
	unskewed           // the clock of the device is wrong: stored with the time of arrival
	stale              // older than max_age
)

// eventTime says when an event happened, on the store's clock.
//
//	with sent_at      received - max(0, sent_at - ts): both are the device's, so its skew cancels
//	without           ts itself from max_age behind to 5 s ahead, never later than received;
//	                  any other ts means a wrong clock, so received is closer to the truth
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
