package spillway

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxAnswer bounds what is read of an answer, in bytes. That on 1000 entries, each
// of them an exception, has about 80 KiB.
const maxAnswer = 1 << 20

// maxRetryAfter bounds what a service may ask to wait.
const maxRetryAfter = time.Hour

// An answer is what an attempt came to.
type answer struct {
	outcome  outcome
	verdicts []string      // stored: of each entry
	after    time.Duration // failed: wait that long at least
	down     bool          // failed: the service did not answer for itself
	no       bool          // failed: an answer that more attempts may not change, so that Attempts bounds them
	err      error         // of every outcome but stored; Is ErrUnknown where it may have stored entries
}

type outcome int

const (
	stored   outcome = iota
	failed           // try again: the same bytes, the same key
	tooMuch          // the body is too large, or has too many entries
	rejected         // the service rejects it, and would again
)

// errForeign is the error of a 200 without what Spillway says with it.
var errForeign = &Error{
	Status:  http.StatusOK,
	Message: "an answer that is none of Spillway's",
	Unknown: true,
	is:      ErrUnknown,
}

// readAnswer reads the answer to a request of n entries and closes its body.
func readAnswer(r *http.Response, n int) answer {
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	if err != nil {
		return answer{outcome: failed, down: true, err: notAnswered(err)}
	}
	switch code := r.StatusCode; {
	case code == http.StatusNoContent:
		return answer{verdicts: make([]string, n)}
	case code == http.StatusOK:
		if verdicts := readVerdicts(body, n); verdicts != nil {
			return answer{verdicts: verdicts}
		}
		return answer{outcome: failed, down: true, no: true, err: errForeign}
	case code == http.StatusRequestEntityTooLarge:
		return answer{outcome: tooMuch, err: newError(r, body)}
	case code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || code >= 500:
		e := newError(r, body)
		away := code >= http.StatusBadGateway && code <= http.StatusGatewayTimeout
		return answer{outcome: failed, down: code >= 500, no: !away, after: e.RetryAfter, err: e}
	default:
		return answer{outcome: rejected, err: newError(r, body)}
	}
}

// readVerdicts reads what a 200 says of each of n entries: "retry", "drop", or that it is stored.
// It is nil where the answer is none of Spillway's.
func readVerdicts(body []byte, n int) []string {
	var said struct {
		Accepted *int
		Results  []*struct {
			I      *int
			Result *string
		}
	}
	if json.Unmarshal(body, &said) != nil || said.Accepted == nil || *said.Accepted < 0 || *said.Accepted > n {
		return nil
	}
	verdicts := make([]string, n)
	for _, r := range said.Results {
		if r == nil || r.I == nil || *r.I < 0 || *r.I >= n || r.Result == nil {
			return nil
		}
		verdicts[*r.I] = *r.Result
	}
	return verdicts
}

// retryAfter reads seconds or a date; 0 for anything else.
func retryAfter(header string) time.Duration {
	header = strings.TrimSpace(header)
	if seconds, err := strconv.ParseUint(header, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(time.Until(at), 0), maxRetryAfter)
	}
	return 0
}
