package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// maxRetryAfter bounds what a receiver may ask for; no entry lives longer.
const maxRetryAfter = time.Hour

// outcome says what an answer means.
//
//	2xx                              accepted, except what its body names (see partial)
//	408, 429, 5xx but 501            retryable
//	429, 503 with Retry-After        retryable no sooner than that, at most 1 h
//	101, 3xx, 401 403 404 405 410,   about the endpoint, not an entry: all of them
//	501                              Permanent by name, so that nobody bisects
//	other 4xx                        Permanent; the drain bisects, for one entry
//	                                 may be to blame
func (s *Sink) outcome(resp *http.Response, answer []byte, b *sink.Batch, now time.Time) error {
	code := resp.StatusCode
	err := fmt.Errorf("post to %s: answered %d", s.host, code)
	switch {
	case code/100 == 2:
		return partial(answer, b)
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		if after := retryAfter(resp.Header, now); after > 0 {
			return sink.Throttle(err, after)
		}
		return err
	case code == http.StatusRequestTimeout:
		return err
	case code == http.StatusSwitchingProtocols, code/100 == 3,
		code == http.StatusUnauthorized, code == http.StatusForbidden,
		code == http.StatusNotFound, code == http.StatusMethodNotAllowed,
		code == http.StatusGone, code == http.StatusNotImplemented:
		all := &sink.BatchError{}
		for i := range b.Entries {
			all.Fail(0, i, sink.Permanent(err))
		}
		return all
	case code/100 == 4:
		return sink.Permanent(err)
	default:
		return err
	}
}

// partial reads what a 2xx answer did not take:
//
//	{"results":[{"i":5,"result":"retry"},{"i":77,"result":"drop","reason":"too_large"}]}
//
// i counts the lines of the POST from 0. "drop" is Permanent, "retry" comes
// again. The form is that of Spillway's own produce answer, so other results
// ("ok", "warning") mean success. Whatever is not of this form, out of range or
// named before is skipped: a receiver may answer anything it likes.
func partial(answer []byte, b *sink.Batch) error {
	var body struct{ Results []json.RawMessage }
	if json.Unmarshal(answer, &body) != nil {
		return nil
	}
	failed := &sink.BatchError{}
	seen := make([]bool, len(b.Entries))
	for _, raw := range body.Results {
		var r struct {
			I              *int
			Result, Reason string
		}
		if json.Unmarshal(raw, &r) != nil || r.I == nil || *r.I < 0 || *r.I >= len(seen) || seen[*r.I] {
			continue
		}
		switch r.Result {
		case "retry":
			failed.Fail(0, *r.I, fmt.Errorf("receiver asks for a retry%s", reasonText(r.Reason)))
		case "drop":
			failed.Fail(0, *r.I, sink.Permanent(fmt.Errorf("receiver dropped it%s", reasonText(r.Reason))))
		default:
			continue
		}
		seen[*r.I] = true
	}
	if len(failed.Failed) == 0 {
		return nil
	}
	return failed
}

// reasonText lets only codes through, such as too_large: free text could repeat
// the payload, and errors are logged.
func reasonText(reason string) string {
	if reason == "" || len(reason) > 64 {
		return ""
	}
	for _, c := range []byte(reason) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return ""
		}
	}
	return ": " + reason
}

// retryAfter is the wait an answer asks for, 0 when none is given or it is over.
// A date counts from the answer's own Date, so that clocks need not agree.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	// Out of range, ParseUint returns the largest value.
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil || errors.Is(err, strconv.ErrRange) {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
