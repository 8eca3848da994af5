package client

import (
	"encoding/json"
	"errors"
	"fmt"
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
	outcome outcome
	results []result      // stored: the entries that were not, or with a warning
	after   time.Duration // failed: wait that long at least
	down    bool          // failed: the service did not answer for itself
	err     error         // of every outcome but stored
}

type outcome int

const (
	stored   outcome = iota
	failed           // try again: the same bytes, the same key
	tooMuch          // the body is too large, or has too many entries
	rejected         // the service refuses it, and would again
)

// A result is that of one entry, by its index.
type result struct {
	Index  int    `json:"i"`
	Result string `json:"result"`
	Reason string `json:"reason"`
}

func failure(err error) answer { return answer{outcome: failed, down: true, err: err} }

// readAnswer reads an answer and closes its body.
func readAnswer(r *http.Response) answer {
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	if err != nil {
		return failure(fmt.Errorf("client: read the answer: %w", err))
	}
	switch code := r.StatusCode; {
	case code == http.StatusNoContent || code == http.StatusAccepted:
		return answer{}
	case code == http.StatusOK:
		var said struct {
			Accepted *int     `json:"accepted"`
			Results  []result `json:"results"`
		}
		if err := json.Unmarshal(body, &said); err != nil || said.Accepted == nil {
			return failure(errors.New("client: an answer that is none of Spillway's: 200 without \"accepted\""))
		}
		return answer{results: said.Results}
	case code == http.StatusRequestEntityTooLarge:
		return answer{outcome: tooMuch, err: refusal(r, body)}
	case code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || code >= 500:
		return answer{outcome: failed, down: code >= 500, after: retryAfter(r.Header.Get("Retry-After")), err: refusal(r, body)}
	default:
		return answer{outcome: rejected, err: refusal(r, body)}
	}
}

// refusal is the error of an answer, with the service's own words.
func refusal(r *http.Response, body []byte) error {
	var said struct {
		Code    string `json:"error"`
		Message string `json:"message"`
	}
	_ = json.Unmarshal(body, &said)
	if said.Code == "" {
		return fmt.Errorf("client: the service answered %s", r.Status)
	}
	return fmt.Errorf("client: the service answered %d %s: %.200s", r.StatusCode, said.Code, said.Message)
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
