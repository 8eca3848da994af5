package load

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/ingest/wire"
)

// sender posts batches to the mixed route of one namespace, one at a time. It
// repeats a request without an answer with the same bytes and the same idempotency
// key, so that its entries are not stored twice.
type sender struct {
	client  *http.Client
	url     string
	token   string        // empty sends none
	timeout time.Duration // for a batch, retries included
	retried int           // repeated requests
}

const (
	attemptTimeout = 15 * time.Second // longer than the service's own timeouts
	lastAttempt    = time.Second      // before the end of the timeout
	backoffBase    = 100 * time.Millisecond
	backoffMax     = 5 * time.Second
	maxAnswer      = 1 << 20 // bytes; 500 results are far less
)

func newSender(transport http.RoundTripper, server, namespace, token string,
	timeout time.Duration) *sender {
	return &sender{
		client: &http.Client{
			Transport: transport,
			// A redirected POST would arrive as a GET.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		url:     strings.TrimSuffix(server, "/") + "/v1/" + namespace,
		token:   token,
		timeout: timeout,
	}
}

// sendResult counts the entries of a send. Those it does not count have an unknown
// outcome.
type sendResult struct {
	accepted, evicted int
	rejected          map[string]int // by reason
}

// answer is the body of a 200 of the mixed route, or of an error.
type answer struct {
	Accepted int `json:"accepted"`
	Evicted  int `json:"evicted"`
	Results  []struct {
		Index       int              `json:"i"`
		Disposition wire.Disposition `json:"result"`
		Reason      wire.Reason      `json:"reason"`
	} `json:"results"`
	Code    wire.Code `json:"error"`
	Message string    `json:"message"`
	Outcome string    `json:"outcome"`
}

// send posts items until each is accepted or dropped. An error means that some were
// neither, because of the timeout, ctx or an error for the whole request.
func (s *sender) send(ctx context.Context, items [][]byte) (total sendResult, err error) {
	total.rejected = map[string]int{}
	deadline := time.Now().Add(s.timeout)
	for attempt := 0; ; attempt++ {
		a, err := s.request(ctx, items, deadline)
		var failed *answerError
		if errors.As(err, &failed) && failed.code != "" {
			total.rejected[string(failed.code)] += len(items)
		}
		if err != nil {
			return total, err
		}
		total.accepted += a.Accepted
		total.evicted += a.Evicted
		var again [][]byte
		for _, r := range a.Results {
			switch r.Disposition {
			case wire.Drop:
				total.rejected[string(r.Reason)]++
			case wire.Retry: // not stored, so a new request is safe
				again = append(again, items[r.Index])
			}
		}
		if len(again) == 0 {
			return total, nil
		}
		items = again
		if err := s.backoff(ctx, attempt, 0, deadline); err != nil {
			return total, fmt.Errorf("the service asked to retry %d entries: %w", len(items), err)
		}
	}
}

// keyWindow is less than the 2m for which the service remembers a key, by the 9s that it may
// take to store what it was sent.
const keyWindow = 110 * time.Second

// request repeats one request until its answer is final, or the service may have forgotten the key
// of an attempt that may have stored entries.
func (s *sender) request(ctx context.Context, items [][]byte, deadline time.Time) (answer, error) {
	body, key := bytes.Join(items, nil), rand.Text()
	var cause error
	maybe, late := false, false // some entries may be stored; the key bounds the deadline
	for attempt := 0; ; attempt++ {
		sent := time.Now()
		a, err := s.post(ctx, body, key, len(items), maybe, deadline)
		if err == nil {
			return a, nil
		}
		if cause == nil || !errors.Is(err, context.DeadlineExceeded) {
			cause = err // an earlier error says more than a timeout
		}
		failed := &answerError{unknown: true, retry: true}
		if errors.As(err, &failed); !failed.retry {
			return a, err
		}
		if failed.unknown && !maybe {
			maybe = true
			if forgotten := sent.Add(keyWindow); forgotten.Before(deadline) {
				deadline, late = forgotten, true
			}
		}
		if waitErr := s.backoff(ctx, attempt, failed.after, deadline); waitErr != nil {
			if late && waitErr != errInterrupted {
				waitErr = errors.New("gave up before the service forgets what it may have stored")
			}
			return a, fmt.Errorf("%w: %w", waitErr, cause)
		}
	}
}

// backoff waits before a retry: full jitter, but at least what the service asked
// for. A wait past the deadline ends with a last attempt shortly before it: what
// the service asks for is an estimate, and until then nothing is lost by waiting.
// Past that it returns an error.
func (s *sender) backoff(ctx context.Context, attempt int, after time.Duration,
	deadline time.Time) error {
	wait := max(after, mathrand.N(min(backoffBase<<min(attempt, 10), backoffMax)))
	left := time.Until(deadline) - min(lastAttempt, s.timeout/4)
	switch {
	case left <= 0 && after > 0:
		return fmt.Errorf("gave up after %v, and the service asks to wait %v more: raise the timeout",
			s.timeout, after)
	case left <= 0:
		return fmt.Errorf("gave up after %v", s.timeout)
	}
	if !guard.Sleep(ctx, min(wait, left)) {
		return errInterrupted
	}
	s.retried++
	return nil
}

// answerError is an answer that is an error or not usable.
type answerError struct {
	status  int
	code    wire.Code
	message string
	retry   bool          // the same request may succeed later
	unknown bool          // entries may be stored
	after   time.Duration // no sooner than this
}

func (r *answerError) Error() string {
	return fmt.Sprintf("the service answered %d %s: %s", r.status, r.code, r.message)
}

// post sends one request once. It finishes after an interrupt, because its answer
// says what was stored.
func (s *sender) post(ctx context.Context, body []byte, key string, items int, maybe bool,
	deadline time.Time) (a answer, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(attemptTimeout, time.Until(deadline)))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Idempotency-Key", key)
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return a, fmt.Errorf("read answer: %w", err)
	}
	err = json.Unmarshal(raw, &a)
	if status := res.StatusCode; status != http.StatusOK {
		retry := status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= 500
		unknown := status >= 500 && (a.Outcome == "unknown" || status != http.StatusServiceUnavailable)
		return a, &answerError{status, a.Code, a.Message, retry, unknown, retryAfter(res.Header)}
	}
	if err != nil {
		return a, &answerError{status: res.StatusCode,
			message: "not an answer of Spillway; is the URL that of its data port?"}
	}
	return a, a.check(items, maybe)
}

// check compares an answer with the number of items in the request. maybe: an attempt before may
// have stored some.
func (a *answer) check(items int, maybe bool) error {
	exceptions := 0
	for _, r := range a.Results {
		if r.Index < 0 || r.Index >= items {
			return &answerError{status: http.StatusOK,
				message: fmt.Sprintf("the answer names item %d of %d", r.Index, items)}
		}
		if r.Disposition == wire.Retry && (maybe || r.Reason == wire.ReasonUnknown) {
			// The entry may be stored: only the same request with the same key is safe.
			return &answerError{
				status:  http.StatusOK,
				code:    wire.Code(wire.ReasonUnknown),
				message: "unknown outcome: some entries may be stored",
				retry:   true,
				unknown: true,
			}
		}
		if r.Disposition == wire.Drop || r.Disposition == wire.Retry {
			exceptions++
		}
	}
	if a.Accepted != items-exceptions {
		return &answerError{status: http.StatusOK,
			message: fmt.Sprintf("%d accepted and %d exceptions are not %d", a.Accepted, exceptions, items)}
	}
	return nil
}

// retryAfter parses the header in both its forms; 0 without one.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(max(seconds, 0)) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
