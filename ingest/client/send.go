package client

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// A sender sends one request at a time.
type sender struct {
	c      *Client
	body   []byte
	packed bytes.Buffer
	zip    *gzip.Writer
	again  []*entry // of the request: asked for once more
}

func newSender(c *Client) *sender {
	return &sender{c: c, zip: gzip.NewWriter(io.Discard)}
}

func (s *sender) run() {
	for r := range s.c.requests {
		s.again = s.again[:0]
		for rest := r.entries; len(rest) > 0; {
			n, isJSON := nextRun(rest)
			s.send(rest[:n], isJSON)
			rest = rest[n:]
		}
		if len(s.again) > 0 {
			sleep(s.c.working, backoff(s.c.cfg.BackoffBase, s.c.cfg.BackoffMax, s.again[0].attempts))
		}
		s.c.finish(r, s.again)
	}
}

// A message is a body with what goes with it, the same on each attempt.
type message struct {
	url, contentType string
	encoding         string
	key              string
	occurred         int64 // of an entry alone; 0: the body says it
	body             []byte
}

// send sends entries that share a body until they are stored, or dropped.
func (s *sender) send(list []*entry, isJSON bool) {
	a, attempts := s.try(s.pack(list, isJSON), list)
	if attempts > 1 || a.outcome != stored {
		// A transport may read a body after it has answered early, or failed.
		s.body, s.packed = nil, bytes.Buffer{}
	}
	switch {
	case a.outcome == stored:
		s.settle(list, a.results)
	case a.outcome == tooMuch && len(list) > 1:
		half := len(list) / 2
		s.send(list[:half], isJSON)
		s.send(list[half:], isJSON)
	default:
		s.drop(list, a.dropped)
	}
}

func (s *sender) pack(list []*entry, isJSON bool) message {
	m := message{
		url: s.c.target, contentType: "application/json",
		key: s.c.keys + "-" + strconv.FormatUint(s.c.numbers.Add(1), 36),
	}
	if isJSON {
		s.body = appendItems(s.body[:0], list)
	} else {
		m.url, m.contentType, m.occurred = s.c.opaque+list[0].part.name, "application/octet-stream", list[0].occurred
		s.body = append(s.body[:0], list[0].payload...)
	}
	m.body = s.body
	if from := s.c.cfg.CompressFrom; from >= 0 && len(m.body) >= from {
		s.packed.Reset()
		s.zip.Reset(&s.packed)
		// A bytes.Buffer takes every write.
		_, _ = s.zip.Write(m.body)
		_ = s.zip.Close()
		m.body, m.encoding = s.packed.Bytes(), "gzip"
	}
	return m
}

// A lastAnswer is that of the last attempt, and why its entries are dropped where it is none.
type lastAnswer struct {
	answer
	dropped Reason
}

// try makes attempts until one is answered for good. It does not go on beyond the
// moment at which the youngest entry is stale.
func (s *sender) try(m message, list []*entry) (last lastAnswer, attempts int) {
	c := s.c
	latest := c.staleAt(list[0])
	for _, e := range list[1:] {
		if at := c.staleAt(e); at.After(latest) {
			latest = at
		}
	}
	for attempt := 1; ; attempt++ {
		if !c.breaker.pass(c.working, latest) {
			return s.late(answer{}), attempt
		}
		a := s.post(m)
		c.breaker.note(!a.down)
		if a.err != nil {
			c.notices.failed(a.err)
		}
		if a.outcome != failed {
			return lastAnswer{a, Rejected}, attempt
		}
		if c.working.Err() != nil {
			return s.late(a), attempt
		}
		if attempt >= c.cfg.Attempts {
			return lastAnswer{a, RetriesExhausted}, attempt
		}
		wait := max(backoff(c.cfg.BackoffBase, c.cfg.BackoffMax, attempt), a.after)
		if time.Until(latest) < wait || !sleep(c.working, wait) {
			return s.late(a), attempt
		}
	}
}

// late is the end of a request that has no time left.
func (s *sender) late(a answer) lastAnswer {
	a.outcome = failed
	if s.c.working.Err() != nil {
		return lastAnswer{a, Shutdown}
	}
	return lastAnswer{a, Stale}
}

// backoff is a random time up to the nth bound (full jitter).
func backoff(base, most time.Duration, n int) time.Duration {
	bound := most
	if n < 32 && base<<(n-1) < most && base<<(n-1) >= base {
		bound = base << (n - 1)
	}
	return time.Duration(rand.Float64() * float64(bound))
}

// post is one attempt.
func (s *sender) post(m message) answer {
	c := s.c
	ctx, cancel := context.WithTimeout(c.working, c.cfg.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(m.body))
	if err != nil {
		return answer{outcome: rejected, err: fmt.Errorf("client: make a request: %w", err)}
	}
	h := r.Header
	h.Set("Content-Type", m.contentType)
	h.Set("Idempotency-Key", m.key)
	h.Set("X-Sent-At", strconv.FormatInt(time.Now().UnixMilli(), 10))
	if m.encoding != "" {
		h.Set("Content-Encoding", m.encoding)
	}
	if m.occurred != 0 {
		h.Set("X-Event-Ts", strconv.FormatInt(m.occurred, 10))
	}
	if c.cfg.Token != "" {
		h.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	told := c.tell()
	if len(told) > 0 {
		h.Set("X-Client-Discards", told.header())
	}
	response, err := c.http.Do(r)
	a := failure(err)
	if err == nil {
		a = readAnswer(response)
	}
	if a.outcome != stored {
		c.untell(told)
	}
	return a
}

// settle enters the results of a request that was judged: what they do not name is
// stored.
func (s *sender) settle(list []*entry, results []result) {
	c := s.c
	verdicts := make(map[int]string, len(results))
	for _, r := range results {
		verdicts[r.Index] = r.Result
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range list {
		e.attempts++
		switch why := verdicts[i]; {
		case why == "retry" && e.attempts < c.cfg.Attempts:
			s.again = append(s.again, e)
			continue
		case why == "retry":
			c.drop(RetriesExhausted, 1)
		case why == "drop":
			c.drop(Rejected, 1)
		default:
			c.acked++
		}
		e.free()
	}
}

func (s *sender) drop(list []*entry, why Reason) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.drop(why, int64(len(list)))
	for _, e := range list {
		e.free()
	}
}
