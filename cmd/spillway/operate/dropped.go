package operate

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"time"
)

// maxSince is how far back the service keeps rates by the second.
const maxSince = 15 * time.Minute

// dropped counts the entries of a namespace that were dropped within the given time, by
// reason. It is nil where the service keeps no history: of namespaces beyond the first
// 64, or in an old version.
func (c *client) dropped(ctx context.Context, namespace string, within time.Duration) (*rates, error) {
	var history struct {
		StepMS int64                 `json:"step_ms"`
		Series map[string][]*float64 `json:"series"` // entries a second, the oldest first
	}
	_, err := c.get(ctx, "/api/v1/history", url.Values{"range": {"15m"}, "namespace": {namespace}}, &history)
	if failed := new(apiError); errors.As(err, &failed) && failed.status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil || history.StepMS <= 0 {
		return nil, err
	}
	step := time.Duration(history.StepMS) * time.Millisecond
	known := false
	count := func(series string) float64 {
		values := history.Series[series]
		n, is := entries(values, int((within+step-1)/step), step.Seconds())
		known = known || is
		return n
	}
	counts := rates{Evicted: count("evicted"), Expired: count("expired"), Dead: count("dead"), Lost: count("lost"), LettersEvicted: count("dead_letters_evicted")}
	if !known {
		return nil, nil
	}
	return &counts, nil
}

// entries adds up the last points of a series of rates. A rate is the mean since the
// last point that has one, so it counts for the points between them, too.
func entries(perSecond []*float64, points int, step float64) (sum float64, known bool) {
	first := max(0, len(perSecond)-points)
	last := -1 // point with a rate
	for i, v := range perSecond {
		if v == nil {
			continue
		}
		if known = true; i >= first {
			covered := 1
			if last >= 0 {
				covered = i - last
			}
			sum += *v * float64(covered) * step
		}
		last = i
	}
	return sum, known
}

// wholeEntries rounds, but some are at least one.
func wholeEntries(n float64) int64 {
	if n <= 0 {
		return 0
	}
	return max(1, int64(math.Round(n)))
}
