package ingest

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestOccurredFollowsTheTimeRules(t *testing.T) {
	t.Parallel()
	const maxAge = 3 * time.Minute
	const age = int64(180_000)
	for name, c := range map[string]struct {
		s    stamps
		at   int64
		want timeVerdict
	}{
		"no ts":                             {stamps{}, now, timely},
		"no ts, sent_at says nothing":       {stamps{sent: 5, hasSent: true}, now, timely},
		"believed":                          {stamps{ts: now - 1000, hasT: true}, now - 1000, timely},
		"believed to max_age":               {stamps{ts: now - age, hasT: true}, now - age, timely},
		"older than max_age":                {stamps{ts: now - age - 1, hasT: true}, now, unskewed},
		"a little ahead":                    {stamps{ts: now + 5000, hasT: true}, now, timely},
		"further ahead":                     {stamps{ts: now + 5001, hasT: true}, now, unskewed},
		"year 1970":                         {stamps{ts: 0, hasT: true}, now, unskewed},
		"skew cancels":                      {stamps{sent: 10_000, ts: 4000, hasSent: true, hasT: true}, now - 6000, timely},
		"skew cancels in the future":        {stamps{sent: now * 2, ts: now*2 - 7, hasSent: true, hasT: true}, now - 7, timely},
		"ts after sent_at clamps":           {stamps{sent: 1000, ts: 9000, hasSent: true, hasT: true}, now, timely},
		"exactly max_age before sent_at":    {stamps{sent: age, ts: 0, hasSent: true, hasT: true}, now - age, timely},
		"longer than max_age before":        {stamps{sent: age + 1, ts: 0, hasSent: true, hasT: true}, now - age - 1, stale},
		"wrong device clock but sent_at ok": {stamps{sent: 2, ts: 1, hasSent: true, hasT: true}, now - 1, timely},
	} {
		c.s.received = now
		if at, verdict := c.s.occurred(maxAge); at != c.at || verdict != c.want {
			t.Errorf("%s: got %d, %v; want %d, %v", name, at-now, verdict, c.at-now, c.want)
		}
	}
}

func TestOccurredIsNeverLaterThanReceivedNorOlderThanMaxAgeUnlessStale(t *testing.T) {
	t.Parallel()
	ms := rapid.Int64Range(0, 9_999_999_999_999)
	rapid.Check(t, func(t *rapid.T) {
		s := stamps{
			received: now, sent: ms.Draw(t, "sent"), ts: ms.Draw(t, "ts"),
			hasSent: rapid.Bool().Draw(t, "hasSent"), hasT: rapid.Bool().Draw(t, "hasT"),
		}
		maxAge := time.Duration(rapid.Int64Range(1, 43_200_000).Draw(t, "maxAge")) * time.Millisecond
		at, verdict := s.occurred(maxAge)
		if at > now || (at < now-maxAge.Milliseconds()) != (verdict == stale) {
			t.Fatalf("%+v: got %d, %v", s, at-now, verdict)
		}
		if verdict == stale && !s.hasSent {
			t.Fatalf("%+v is stale without a sent_at to prove it", s)
		}
	})
}
