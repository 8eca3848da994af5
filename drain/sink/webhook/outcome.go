package webhook

import (
	"bytes"
	"encoding/json"
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
//	101, 3xx, 401 403 404 405 410,   about the endpoint, not an entry: all of them
//	501                              Permanent by name, so that the drain does not bisect
//	other 4xx                        Permanent; the drain bisects, for one entry
//	                                 may be to blame
func (s *Sink) outcome(resp *http.Response, answer []byte, b *sink.Batch, now time.Time) error {
	code := resp.StatusCode
	err := fmt.Errorf("post to %s: answered %d", s.host, code)
	if code/100 != 2 && plainText(resp.Header) {
		err = sink.WithDetail(err, answer)
	}
	switch {
	case code/100 == 2:
		failed, unreadable := partial(answer, resp.Header, b)
		switch {
		case unreadable != nil:
			return fmt.Errorf("%w, but %w", err, unreadable)
		case failed != nil:
			return failed
		}
		return nil
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
// again, "ok" and "warning" mean success, as in Spillway's own produce answer.
// What decides, in this order:
//
//	a body in a Content-Encoding         an error: it may hold results
//	an empty body, or one that does not  accepted, all of it
//	begin with {
//	longer than maxAnswer, or not one    an error: results may be in what is
//	whole JSON object                    missing
//	no results in it, or null            accepted, all of it
//	results that are not a list of       an error: who is meant is not known
//	the form above
//
// An error is retryable and means the whole batch: the receiver sees it again,
// and nothing that it may have refused counts as delivered.
func partial(answer []byte, h http.Header, b *sink.Batch) (failed *sink.BatchError, err error) {
	text := bytes.TrimLeft(bytes.TrimPrefix(answer, []byte("\ufeff")), " \t\r\n")
	long := len(answer) > maxAnswer
	switch {
	case len(answer) > 0 && !plainText(h):
		return nil, errors.New("in a Content-Encoding that was not asked for")
	case long && (len(text) == 0 || text[0] == '{'):
		return nil, fmt.Errorf("with more than %d bytes", maxAnswer)
	case len(text) == 0 || text[0] != '{':
		return nil, nil
	}
	body := struct{ Results resultList }{resultList{named: make([]bool, len(b.Entries))}}
	switch err := json.Unmarshal(text, &body); {
	case errors.Is(err, errResults):
		return nil, errResults
	case err != nil:
		return nil, errors.New("with a { that begins no whole JSON object")
	case len(body.Results.failed.Failed) == 0:
		return nil, nil
	}
	return &body.Results.failed, nil
}

// plainText reports whether a body can be read as it came.
func plainText(h http.Header) bool {
	return slices.Contains([]string{"", "identity"}, h.Get("Content-Encoding"))
}

var errResults = errors.New(`with results that are not a list of {"i":LINE,"result":"drop|retry|ok|warning"}`)

// resultList is the value of results. It decodes one result at a time, so that
// it takes no more memory than the answer; a key given twice adds up.
type resultList struct {
	failed sink.BatchError
	named  []bool // by line: failed already
}

func (l *resultList) UnmarshalJSON(list []byte) error {
	if string(list) == "null" {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(list))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('[') {
		return errResults
	}
	for decoder.More() {
		var r struct {
			I      *int
			Result string
			Reason any
		}
		if decoder.Decode(&r) != nil || r.I == nil || *r.I < 0 || *r.I >= len(l.named) {
			return errResults
		}
		reason, _ := r.Reason.(string)
		var err error
		switch r.Result {
		case "ok", "warning":
			continue
		case "retry":
			err = fmt.Errorf("receiver asks for a retry%s", reasonText(reason))
		case "drop":
			err = fmt.Errorf("receiver dropped it%s", reasonText(reason))
			if reasonText(reason) == "" {
				err = sink.WithDetail(err, reason)
			}
			err = sink.Permanent(err)
		default:
			return errResults
		}
		if !l.named[*r.I] {
			l.named[*r.I] = true
			l.failed.Fail(0, *r.I, err)
		}
	}
	return nil
}

// reasonText lets only codes through, such as too_large: free text could repeat
// the payload, and errors are logged. The dead letter has all of it.
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
