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
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// QueuesConfig is how a Queues works. A zero field means its default, None a duration of 0.
type QueuesConfig struct {
	// Namespace of the queues; default "default".
	Namespace string
	// Token of the namespace, sent as a bearer token; default none.
	Token string
	// Timeout bounds one attempt, beyond what a Claim waits; default 10s.
	Timeout time.Duration
	// Attempts is how often a request is tried while the service cannot be reached, is
	// overloaded or limits the rate; default 4. Between attempts it waits a random time between
	// 0 and min(BackoffMax, BackoffBase·2^n); default 100ms and 5s, and at least as long as
	// the service's Retry-After says.
	Attempts                int
	BackoffBase, BackoffMax time.Duration
	// Transport carries the requests; default one of its own, made like
	// http.DefaultTransport. clienttest has one for tests.
	Transport http.RoundTripper
}

func (c *QueuesConfig) fill() {
	fill(&c.Namespace, "default")
	fill(&c.Timeout, 10*time.Second)
	fill(&c.Attempts, 4)
	fill(&c.BackoffBase, 100*time.Millisecond)
	fill(&c.BackoffMax, 5*time.Second)
	if c.Transport == nil {
		c.Transport = newTransport(64)
	}
}

func (c *QueuesConfig) check() error {
	switch {
	case !validName(c.Namespace, 64):
		return fmt.Errorf("spillway: namespace %q: want a letter or digit, then letters, digits, ._- up to 64",
			c.Namespace)
	case strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("spillway: the token holds a character that no token has")
	case c.Timeout <= 0 || c.Attempts < 0 || c.BackoffBase < 0 || c.BackoffMax < c.BackoffBase:
		return errors.New("spillway: a duration or the attempts are negative, the timeout is none, or the longest back-off is less than the first")
	}
	return nil
}

// Queues publishes and claims the jobs of a namespace's queues. Unlike a Reporter it keeps
// nothing: each call is a request, and its error says what became of it. It is safe for
// concurrent use.
type Queues struct {
	cfg     QueuesConfig
	base    string // URL of the namespace
	http    *http.Client
	own     bool          // its transport is of its own
	keys    string        // what idempotency keys begin with
	numbers atomic.Uint64 // what they go on with
}

// NewQueues returns a Queues for the service at url, such as "http://127.0.0.1:8080". It
// connects to nothing yet. The caller closes it.
func NewQueues(url string, cfg QueuesConfig) (*Queues, error) {
	own := cfg.Transport == nil
	cfg.fill()
	base, err := endpoint(url)
	if err != nil {
		return nil, err
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Queues{
		cfg:  cfg,
		own:  own,
		base: base + "/v1/" + cfg.Namespace + "/",
		keys: rand.Text(),
		http: &http.Client{
			Transport:     cfg.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close ends the connections that carry no request, unless the Transport is the caller's. Calls
// under way, and those that follow, make connections of their own.
func (q *Queues) Close() {
	if q.own {
		q.http.CloseIdleConnections()
	}
}

// A jobRequest is the same on each attempt.
type jobRequest struct {
	method, path string // the path after the namespace
	query        url.Values
	contentType  string
	key          string        // Idempotency-Key
	ifMatch      string        // If-Match; "": none
	keyTTL       time.Duration // how long the service remembers it
	body         []byte
	wait         time.Duration // how long the service may take on purpose
	attempts     int           // 0: as configured
}

// maxJobsAnswer bounds what is read of an answer, in bytes: 4 MiB of payloads are 5.4 MiB of
// base64, and one payload alone may be larger.
const maxJobsAnswer = 64 << 20

// do makes attempts until one is answered for good, and decodes that answer into result. maybe:
// an attempt before the last may have done what was asked.
func (q *Queues) do(ctx context.Context, r jobRequest, result any) (maybe bool, err error) {
	attempts := r.attempts
	if attempts == 0 {
		attempts = q.cfg.Attempts
	}
	var forgotten time.Time // when the service may not know the key any more of an attempt that may have been done
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil && attempt == 1 {
			return false, fmt.Errorf("spillway: %w", err)
		}
		sent, timeout := time.Now(), q.cfg.Timeout+r.wait
		if maybe && r.key != "" {
			timeout = min(timeout, forgotten.Sub(sent))
		}
		body, err := q.post(ctx, r, timeout)
		if err == nil {
			if json.Unmarshal(body, result) != nil {
				return maybe, errForeign
			}
			return maybe, nil
		}
		var e *Error
		if !errors.As(err, &e) || !e.temporary() {
			return maybe, err
		}
		if e.Unknown && !maybe {
			maybe, forgotten = true, sent.Add(r.keyTTL/12*11)
		}
		if maybe { // whatever this attempt came to
			e.Unknown, e.is = true, ErrUnknown
		}
		wait := max(backoff(q.cfg.BackoffBase, q.cfg.BackoffMax, attempt), e.RetryAfter)
		end, bounded := ctx.Deadline()
		switch {
		case attempt >= attempts || ctx.Err() != nil:
		case bounded && time.Until(end) < wait || maybe && r.key != "" && time.Until(forgotten) < wait:
		case sleep(ctx, wait):
			continue
		}
		e.ended = ctx.Err()
		return maybe, e
	}
}

// post is one attempt. Its errors are *Error, which the caller may change.
func (q *Queues) post(ctx context.Context, r jobRequest, timeout time.Duration) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	response, err := q.send(limited, r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxJobsAnswer))
	if err != nil {
		return nil, notAnswered(err)
	}
	return body, nil
}

// send sends a request, and returns an answer that says yes. The caller closes its body.
func (q *Queues) send(ctx context.Context, r jobRequest) (*http.Response, error) {
	target := q.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(r.body))
	if err != nil {
		return nil, fmt.Errorf("spillway: make a request: %w", err)
	}
	h := request.Header
	if r.contentType != "" {
		h.Set("Content-Type", r.contentType)
	}
	if r.key != "" {
		h.Set("Idempotency-Key", r.key)
	}
	if r.ifMatch != "" {
		h.Set("If-Match", r.ifMatch)
	}
	if q.cfg.Token != "" {
		h.Set("Authorization", "Bearer "+q.cfg.Token)
	}
	response, err := q.http.Do(request)
	if err != nil {
		return nil, notAnswered(err)
	}
	if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusCreated {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxJobsAnswer))
	if err != nil {
		return nil, notAnswered(err)
	}
	return nil, newError(response, body)
}

// newKey is an idempotency key that no other request has.
func (q *Queues) newKey() string { return q.keys + "-" + strconv.FormatUint(q.numbers.Add(1), 36) }

// validQueue is the rule for names of queues.
func validQueue(name string) bool {
	if name == "" || len(name) > 255 || name[0] == '.' || name[0] == '_' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' ||
			c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// queueNames are queues without their weights.
func queueNames(queues []string) []string {
	names := make([]string, len(queues))
	for i, queue := range queues {
		names[i], _, _ = strings.Cut(queue, "*")
	}
	return names
}

func checkQueue(names ...string) error {
	for _, name := range names {
		if !validQueue(name) {
			return &Error{Code: "bad_queue", Message: fmt.Sprintf("%.64q: a queue is 1 to 255 letters, digits, ._- and begins with neither . nor _",
				name), is: ErrInvalid}
		}
	}
	return nil
}
