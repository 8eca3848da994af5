package spillway

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// A Poster posts entries and waits for what becomes of them, for a program that goes at the pace of
// the service. It drops nothing by itself. A [Reporter] is for programs that must not wait.
type Poster struct {
	cfg  PosterConfig
	url  string
	http *http.Client
}

// PosterConfig is how a Poster works.
type PosterConfig struct {
	Namespace string        // that the entries go to
	Token     string        // of the namespace; empty sends none
	Timeout   time.Duration // of a Post, retries included
	Transport http.RoundTripper
}

// Posted counts the entries of a Post. Those that are not counted may be stored.
type Posted struct {
	Accepted int
	Evicted  int            // older entries, which made room
	Rejected map[string]int // by the service's reason, or its code for the whole request
	Retried  int            // requests that were repeated
	Unread   []int          // the places of those that the service cannot read; they are in Rejected as well
}

const (
	attemptTimeout = 15 * time.Second // longer than the service's own timeouts
	lastAttempt    = time.Second      // before the end of the timeout
)

// NewPoster returns a Poster for the service at url, such as "http://127.0.0.1:8080".
func NewPoster(url string, cfg PosterConfig) *Poster {
	return &Poster{
		cfg: cfg,
		url: strings.TrimSuffix(url, "/") + "/v1/" + cfg.Namespace,
		http: &http.Client{
			Transport: cfg.Transport,
			// A redirected POST would arrive as a GET.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// posting is a Post under way.
type posting struct {
	*Poster
	ctx      context.Context
	deadline time.Time
	total    Posted
}

// Post sends items, each a line of JSON as the mixed route takes it, until each is accepted or
// rejected. An error means that some are neither, because of the timeout, ctx or an answer to the
// whole request. Requests go one after the other, so entries of a partition keep their order. One
// without an answer is repeated with the same bytes and key, so that it is stored once. Where the service
// cannot read a request, its halves are sent, so that only the item that it cannot read is rejected.
func (p *Poster) Post(ctx context.Context, items [][]byte) (Posted, error) {
	s := &posting{Poster: p, ctx: ctx, deadline: time.Now().Add(p.cfg.Timeout)}
	s.total.Rejected = map[string]int{}
	err := s.postPart(items, 0)
	return s.total, err
}

// unread is the code of a request of which the service cannot read a line.
const unread = "bad_ndjson"

// postPart posts items, of which the first is the one at a place.
func (s *posting) postPart(items [][]byte, at int) error {
	for attempt := 1; ; attempt++ {
		said, err := s.request(items)
		if err != nil {
			var failed *postError
			bad := errors.As(err, &failed) && failed.code == unread
			if half := len(items) / 2; bad && attempt == 1 && half > 0 {
				if err := s.postPart(items[:half], at); err != nil {
					return err
				}
				return s.postPart(items[half:], at+half)
			}
			if failed != nil && failed.code != "" {
				s.total.Rejected[failed.code] += len(items)
			}
			if bad && len(items) == 1 {
				s.total.Unread = append(s.total.Unread, at)
				return nil
			}
			return err
		}
		s.total.Accepted += said.Accepted
		s.total.Evicted += said.Evicted
		var again [][]byte
		for _, r := range said.Results {
			switch r.Result {
			case "drop":
				s.total.Rejected[r.Reason]++
			case "retry": // not stored, so a new request is safe
				again = append(again, items[r.I])
			}
		}
		if len(again) == 0 {
			return nil
		}
		items = again
		if err := s.wait(attempt, 0); err != nil {
			return fmt.Errorf("the service asked to retry %d entries: %w", len(items), err)
		}
	}
}

// postAnswer is the body of a 200 of the mixed route, or of an error.
type postAnswer struct {
	Accepted, Evicted int
	Results           []struct {
		I              int
		Result, Reason string
	}
	Error, Message, Outcome string
}

// postError is an answer that is an error or not usable.
type postError struct {
	status        int
	code, message string
	retry         bool          // the same request may succeed later
	unknown       bool          // entries may be stored
	after         time.Duration // no sooner than this
}

func (e *postError) Error() string {
	return fmt.Sprintf("the service answered %d %s: %s", e.status, e.code, e.message)
}

// request repeats one request until its answer is final, or the service may have forgotten the key
// of an attempt that may have stored entries.
func (s *posting) request(items [][]byte) (said postAnswer, err error) {
	body, key := bytes.Join(items, nil), rand.Text()
	var cause error
	maybe, late := false, false // some entries may be stored; the key bounds the deadline
	for attempt := 1; ; attempt++ {
		sent := time.Now()
		said, err = s.post(body, key, len(items), maybe)
		if err == nil {
			return said, nil
		}
		if cause == nil || !errors.Is(err, context.DeadlineExceeded) {
			cause = err // an earlier error says more than a timeout
		}
		failed := &postError{unknown: true, retry: true}
		if errors.As(err, &failed); !failed.retry {
			return said, err
		}
		if failed.unknown && !maybe {
			maybe = true
			if forgotten := sent.Add(keyWindow); forgotten.Before(s.deadline) {
				s.deadline, late = forgotten, true
			}
		}
		err = s.wait(attempt, failed.after)
		switch {
		case err == nil:
			continue
		case s.ctx.Err() != nil:
			return said, cause
		case late:
			err = errors.New("gave up before the service forgets what it may have stored")
		}
		return said, fmt.Errorf("%w: %w", err, cause)
	}
}

// wait rests before a retry, at least as long as the service asked for. A rest past the deadline
// ends with a last attempt shortly before it: what the service asks for is an estimate, and until
// then nothing is lost by waiting. Past that it is an error.
func (s *posting) wait(attempt int, after time.Duration) error {
	rest := max(after, backoff(100*time.Millisecond, 5*time.Second, attempt))
	left := time.Until(s.deadline) - min(lastAttempt, s.cfg.Timeout/4)
	switch {
	case left <= 0 && after > 0:
		return fmt.Errorf("gave up after %v, and the service asks to wait %v more: raise the timeout",
			s.cfg.Timeout, after)
	case left <= 0:
		return fmt.Errorf("gave up after %v", s.cfg.Timeout)
	}
	if !sleep(s.ctx, min(rest, left)) {
		return s.ctx.Err()
	}
	s.total.Retried++
	return nil
}

// post sends one request once. It finishes after ctx ends, because its answer says what was stored.
func (s *posting) post(body []byte, key string, items int, maybe bool) (said postAnswer, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), min(attemptTimeout, time.Until(s.deadline)))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return said, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Idempotency-Key", key)
	if s.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.cfg.Token)
	}
	res, err := s.http.Do(req)
	if err != nil {
		return said, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return said, fmt.Errorf("read answer: %w", err)
	}
	err = json.Unmarshal(raw, &said)
	if status := res.StatusCode; status != http.StatusOK {
		return said, &postError{
			status:  status,
			code:    said.Error,
			message: said.Message,
			retry:   status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= 500,
			unknown: status >= 500 && (said.Outcome == "unknown" || status != http.StatusServiceUnavailable),
			after:   retryAfter(res.Header.Get("Retry-After")),
		}
	}
	if err != nil {
		return said, notUsable("not an answer of Spillway; is the URL that of its data port?")
	}
	return said, said.check(items, maybe)
}

func notUsable(format string, args ...any) error {
	return &postError{status: http.StatusOK, message: fmt.Sprintf(format, args...)}
}

// check compares an answer with the number of items in the request. maybe: an attempt before may
// have stored some.
func (a *postAnswer) check(items int, maybe bool) error {
	exceptions := 0
	for _, r := range a.Results {
		switch {
		case r.I < 0 || r.I >= items:
			return notUsable("the answer names item %d of %d", r.I, items)
		case r.Result == "retry" && (maybe || r.Reason == "unknown"):
			// The entry may be stored: only the same request with the same key is safe.
			return &postError{
				status:  http.StatusOK,
				code:    "unknown",
				message: "unknown outcome: some entries may be stored",
				retry:   true,
				unknown: true,
			}
		case r.Result == "drop" || r.Result == "retry":
			exceptions++
		}
	}
	if a.Accepted != items-exceptions {
		return notUsable("%d accepted and %d exceptions are not %d", a.Accepted, exceptions, items)
	}
	return nil
}
