package ingest

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestEventTimeFollowsTheTimeRules(t *testing.T) {
	t.Parallel()
	const maxAge = 3 * time.Minute
	const age = int64(180_000)
	for name, c := range map[string]struct {
		s    eventTimes
		at   int64
		want timeCheck
	}{
		"no ts":                             {eventTimes{}, now, timely},
		"no ts, sent_at says nothing":       {eventTimes{sent: 5, hasSent: true}, now, timely},
		"plausible":                         {eventTimes{ts: now - 1000, hasTS: true}, now - 1000, timely},
		"plausible up to max_age":           {eventTimes{ts: now - age, hasTS: true}, now - age, timely},
		"older than max_age":                {eventTimes{ts: now - age - 1, hasTS: true}, now, unskewed},
		"a little ahead":                    {eventTimes{ts: now + 5000, hasTS: true}, now, timely},
		"further ahead":                     {eventTimes{ts: now + 5001, hasTS: true}, now, unskewed},
		"year 1970":                         {eventTimes{ts: 0, hasTS: true}, now, unskewed},
		"skew cancels":                      {eventTimes{sent: 10_000, ts: 4000, hasSent: true, hasTS: true}, now - 6000, timely},
		"skew cancels in the future":        {eventTimes{sent: now * 2, ts: now*2 - 7, hasSent: true, hasTS: true}, now - 7, timely},
		"ts after sent_at clamps":           {eventTimes{sent: 1000, ts: 9000, hasSent: true, hasTS: true}, now, timely},
		"exactly max_age before sent_at":    {eventTimes{sent: age, ts: 0, hasSent: true, hasTS: true}, now - age, timely},
		"longer than max_age before":        {eventTimes{sent: age + 1, ts: 0, hasSent: true, hasTS: true}, now - age - 1, stale},
		"wrong device clock but sent_at ok": {eventTimes{sent: 2, ts: 1, hasSent: true, hasTS: true}, now - 1, timely},
	} {
		c.s.received = now
		if at, check := c.s.eventTime(maxAge); at != c.at || check != c.want {
			t.Errorf("%s: got %d, %v; want %d, %v", name, at-now, check, c.at-now, c.want)
		}
	}
}

func TestEventTimeIsNeverLaterThanReceivedNorOlderThanMaxAgeUnlessStale(t *testing.T) {
	t.Parallel()
	ms := rapid.Int64Range(0, 9_999_999_999_999)
	rapid.Check(t, func(t *rapid.T) {
		s := eventTimes{
			received: now, sent: ms.Draw(t, "sent"), ts: ms.Draw(t, "ts"),
			hasSent: rapid.Bool().Draw(t, "hasSent"), hasTS: rapid.Bool().Draw(t, "hasTS"),
		}
		maxAge := time.Duration(rapid.Int64Range(1, 43_200_000).Draw(t, "maxAge")) * time.Millisecond
		at, check := s.eventTime(maxAge)
		if at > now || (at < now-maxAge.Milliseconds()) != (check == stale) {
			t.Fatalf("%+v: got %d, %v", s, at-now, check)
		}
		if check == stale && !s.hasSent {
			t.Fatalf("%+v is stale without a sent_at", s)
		}
	})
}
