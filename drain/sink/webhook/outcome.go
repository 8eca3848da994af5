package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// maxRetryAfter bounds what a receiver may ask for; no entry lives longer.
const maxRetryAfter = time.Hour

// outcome says what an answer means.
//
//	2xx                              accepted, except what its body names; retryable
//	                                 where that cannot be read (see partial)
//	408, 429, 5xx but 501            retryable
//	429, 503 with Retry-After        retryable no sooner than that, at most 1 h
//	401, 403                         Unsent: a right is missing, which a person gives
//	101, 3xx, 404 405 410, 501       about the endpoint, not an entry: all of them
//	                                 Permanent by name, so that the drain does not bisect;
//	                                 retryable for jobs, which have tries, all but 410
//	other 4xx                        Permanent; the drain bisects, for one entry
//	                                 may be to blame
func (s *Sink) outcome(a sink.Answer, b *sink.Batch, now time.Time) error {
	code := a.Status
	err := fmt.Errorf("post to %s: answered %d", s.host, code)
	if code/100 != 2 && plainText(a.Header) {
		err = sink.WithDetail(err, a.Body)
	}
	switch {
	case code/100 == 2:
		failed, unreadable := partial(a.Body, a.Header, b)
		switch {
		case unreadable != nil:
			return fmt.Errorf("%w, but %w", err, unreadable)
		case failed != nil:
			return failed
		}
		return nil
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		if after := retryAfter(a.Header, now); after > 0 {
			return sink.Throttle(err, after)
		}
		return err
	case code == http.StatusRequestTimeout:
		return err
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return sink.Unsent(err)
	case code == http.StatusSwitchingProtocols, code/100 == 3,
		code == http.StatusNotFound, code == http.StatusMethodNotAllowed,
		code == http.StatusGone, code == http.StatusNotImplemented:
		if b.Jobs != nil && code != http.StatusGone {
			return err
		}
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

// partial reads what a 2xx answer did not take, see sink.ReadResults. A body in a
// Content-Encoding is an error: it may hold results.
func partial(answer []byte, h http.Header, b *sink.Batch) (failed *sink.BatchError, err error) {
	if len(answer) > 0 && !plainText(h) {
		return nil, errors.New("in a Content-Encoding that was not asked for")
	}
	return sink.ReadResults(answer, len(b.Entries))
}

// plainText reports whether a body can be read as it came.
func plainText(h http.Header) bool {
	return slices.Contains([]string{"", "identity"}, h.Get("Content-Encoding"))
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
