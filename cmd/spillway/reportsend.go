package main

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

	"github.com/spillway-io/spillway/ingest/wire"
)

// sender posts batches to the mixed route of one namespace, one at a time. It
// repeats what was not answered: the same bytes under the same key, so that a
// request whose answer was lost is not stored twice.
type sender struct {
	client  *http.Client
	url     string
	token   string        // empty sends none
	timeout time.Duration // for a batch, retries included
	retried int           // requests sent again
}

const (
	attemptTimeout = 15 * time.Second // above the service's own limits
	backoffFirst   = 100 * time.Millisecond
	backoffMost    = 5 * time.Second
	maxAnswer      = 1 << 20 // bytes; 500 verdicts are far less
)

func newSender(transport http.RoundTripper, server, namespace, token string, timeout time.Duration) *sender {
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

// outcome is what became of the entries of a send. Those it does not count are
// not known to be stored.
type outcome struct {
	accepted, evicted int
	rejected          map[string]int // by reason
}

// answer is the form of a 200 of the mixed route, and of a failure.
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
}

// send posts items until each is accepted or dropped. An error means that some
// were neither, because of the timeout, ctx or a refusal of the whole request.
func (s *sender) send(ctx context.Context, items [][]byte) (o outcome, err error) {
	o.rejected = map[string]int{}
	deadline := time.Now().Add(s.timeout)
	for attempt := 0; ; attempt++ {
		a, err := s.settle(ctx, items, deadline)
		var refused *refusal
		if errors.As(err, &refused) && refused.code != "" {
			o.rejected[string(refused.code)] += len(items)
		}
		if err != nil {
			return o, err
		}
		o.accepted += a.Accepted
		o.evicted += a.Evicted
		var again [][]byte
		for _, r := range a.Results {
			switch r.Disposition {
			case wire.Drop:
				o.rejected[string(r.Reason)]++
			case wire.Retry: // not stored, so a request of its own is safe
				again = append(again, items[r.Index])
			}
		}
		if len(again) == 0 {
			return o, nil
		}
		items = again
		if err := s.backoff(ctx, attempt, 0, deadline); err != nil {
			return o, fmt.Errorf("the service put off %d entries: %w", len(items), err)
		}
	}
}

// settle repeats one request until it is answered for good.
func (s *sender) settle(ctx context.Context, items [][]byte, deadline time.Time) (answer, error) {
	body, key := bytes.Join(items, nil), rand.Text()
	var cause error
	for attempt := 0; ; attempt++ {
		a, err := s.post(ctx, body, key, len(items), deadline)
		if err == nil {
			return a, nil
		}
		if cause == nil || !errors.Is(err, context.DeadlineExceeded) {
			cause = err // that time ran out says less than what used it up
		}
		var after time.Duration
		if refused := new(refusal); errors.As(err, &refused) {
			if !refused.retry {
				return a, err
			}
			after = refused.after
		}
		if waitErr := s.backoff(ctx, attempt, after, deadline); waitErr != nil {
			return a, fmt.Errorf("%w: %w", waitErr, cause)
		}
	}
}

// backoff waits before a repeat: full jitter, and never less than the service
// asked for. It refuses when the wait would pass the deadline.
func (s *sender) backoff(ctx context.Context, attempt int, after time.Duration, deadline time.Time) error {
	wait := max(after, mathrand.N(min(backoffFirst<<min(attempt, 10), backoffMost)))
	if time.Until(deadline) <= wait {
		return fmt.Errorf("gave up after %v", s.timeout)
	}
	if !sleep(ctx, wait) {
		return errInterrupted
	}
	s.retried++
	return nil
}

// refusal is an answer that settles nothing.
type refusal struct {
	status  int
	code    wire.Code
	message string
	retry   bool          // the same request may fare better
	after   time.Duration // no sooner than this
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the service answers %d %s: %s", r.status, r.code, r.message)
}

// post sends one request once. An interrupt lets it finish: its answer tells
// what was stored.
func (s *sender) post(ctx context.Context, body []byte, key string, items int, deadline time.Time) (a answer, err error) {
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
		return a, &refusal{status, a.Code, a.Message, retry, retryAfter(res.Header)}
	}
	if err != nil {
		return a, &refusal{status: res.StatusCode, message: "not in Spillway's form; is that its data port?"}
	}
	return a, a.check(items)
}

// check holds an answer against the number of items it is about.
func (a *answer) check(items int) error {
	exceptions := 0
	for _, r := range a.Results {
		if r.Index < 0 || r.Index >= items {
			return &refusal{status: http.StatusOK, message: fmt.Sprintf("it speaks of item %d of %d", r.Index, items)}
		}
		if r.Disposition == wire.Retry && r.Reason == wire.ReasonUnknown {
			// May be stored: only the same request under the same key is safe.
			return &refusal{status: http.StatusOK, code: wire.Code(r.Reason), message: "some entries may be stored, and may not", retry: true}
		}
		if r.Disposition == wire.Drop || r.Disposition == wire.Retry {
			exceptions++
		}
	}
	if a.Accepted != items-exceptions {
		return &refusal{status: http.StatusOK, message: fmt.Sprintf("%d accepted and %d exceptions are not %d", a.Accepted, exceptions, items)}
	}
	return nil
}

// retryAfter reads the header in both its forms; 0 without one.
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

// sleep waits and reports whether it did so to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
