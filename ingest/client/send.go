package spillway

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// A sender sends one request at a time.
type sender struct {
	r      *Reporter
	body   []byte
	packed bytes.Buffer
	zip    *gzip.Writer
}

func newSender(r *Reporter) *sender {
	return &sender{r: r, zip: gzip.NewWriter(io.Discard)}
}

func (s *sender) run() {
	for r := range s.r.requests {
		for rest := r.entries; len(rest) > 0; {
			n, isJSON := nextRun(rest)
			s.send(rest[:n], isJSON)
			rest = rest[n:]
		}
		s.r.finish(r)
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
	why, split := s.try(s.pack(list, isJSON), list)
	if split {
		half := len(list) / 2
		s.send(list[:half], isJSON)
		s.send(list[half:], isJSON)
		return
	}
	s.drop(list, why)
}

func (s *sender) pack(list []*entry, isJSON bool) message {
	m := message{
		url: s.r.target, contentType: "application/json",
		key: s.r.keys + "-" + strconv.FormatUint(s.r.numbers.Add(1), 36),
	}
	if isJSON {
		s.body = appendItems(s.body[:0], list)
	} else {
		m.url = s.r.opaque + list[0].part.name
		m.contentType = "application/octet-stream"
		m.occurred = list[0].occurred
		s.body = append(s.body[:0], list[0].payload...)
	}
	m.body = s.body
	if from := s.r.cfg.CompressFrom; from >= 0 && len(m.body) >= from {
		s.packed.Reset()
		s.zip.Reset(&s.packed)
		// A bytes.Buffer takes every write.
		_, _ = s.zip.Write(m.body)
		_ = s.zip.Close()
		m.body, m.encoding = s.packed.Bytes(), "gzip"
	}
	return m
}

// try makes attempts until each entry is stored or dropped for good: the others are left in list,
// and why says what becomes of them, or split that the body is too large. All attempts have the
// same bytes and key, so that the service, which may have stored some of the entries, stores only
// the others. They end when the youngest entry is stale, and before the service forgets the key.
func (s *sender) try(m message, list []*entry) (why Reason, split bool) {
	r := s.r
	latest, late := r.staleAt(list[0]), Stale
	for _, e := range list[1:] {
		if at := r.staleAt(e); at.After(latest) {
			latest = at
		}
	}
	maybe, noes := false, 0 // some entries may be stored
	for attempt := 1; ; attempt++ {
		if !r.breaker.pass(r.working, latest) {
			break
		}
		sent, timeout := time.Now().Round(0), r.cfg.Timeout
		if late == Unknown {
			timeout = min(timeout, latest.Sub(sent))
		}
		a := s.post(m, len(list), timeout)
		r.breaker.note(!a.down)
		if a.err != nil {
			r.notices.failed(a.err)
		}
		if a.outcome != stored {
			// A transport may read a body after it has answered early, or failed.
			s.body, s.packed = nil, bytes.Buffer{}
		}
		switch {
		case a.outcome == stored && s.settle(list, a.verdicts):
			return "", false
		case a.outcome == tooMuch || a.outcome == rejected:
			return Rejected, a.outcome == tooMuch && len(list) > 1 && !maybe
		case !maybe && (a.outcome == stored || errors.Is(a.err, ErrUnknown)):
			maybe = true
			if forgotten := sent.Add(r.cfg.keyWindow); forgotten.Before(latest) {
				latest, late = forgotten, Unknown
			}
		}
		if a.no {
			noes++
		}
		if noes >= r.cfg.Attempts && r.working.Err() == nil {
			return RetriesExhausted, false
		}
		wait := max(backoff(r.cfg.BackoffBase, r.cfg.BackoffMax, attempt), a.after)
		if time.Until(latest) < wait || !sleep(r.working, wait) {
			break
		}
	}
	if r.working.Err() != nil {
		late = Shutdown
	}
	return late, false
}

// backoff is a random time up to the nth bound (full jitter).
func backoff(base, most time.Duration, n int) time.Duration {
	bound := most
	if n < 32 && base<<(n-1) < most && base<<(n-1) >= base {
		bound = base << (n - 1)
	}
	return time.Duration(rand.Float64() * float64(bound))
}

// post is one attempt with n entries.
func (s *sender) post(m message, n int, timeout time.Duration) answer {
	r := s.r
	ctx, cancel := context.WithTimeout(r.working, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(m.body))
	if err != nil {
		return answer{outcome: rejected, err: fmt.Errorf("spillway: make a request: %w", err)}
	}
	h := req.Header
	h.Set("Content-Type", m.contentType)
	h.Set("Idempotency-Key", m.key)
	h.Set("X-Sent-At", strconv.FormatInt(time.Now().UnixMilli(), 10))
	if m.encoding != "" {
		h.Set("Content-Encoding", m.encoding)
	}
	if m.occurred != 0 {
		h.Set("X-Event-Ts", strconv.FormatInt(m.occurred, 10))
	}
	if r.cfg.Token != "" {
		h.Set("Authorization", "Bearer "+r.cfg.Token)
	}
	told := r.tell()
	if len(told) > 0 {
		h.Set("X-Client-Discards", told.header())
	}
	var a answer
	if response, err := r.http.Do(req); err == nil {
		a = readAnswer(response, n)
	} else {
		a = answer{outcome: failed, down: true, err: notAnswered(err)}
	}
	if a.outcome != stored {
		r.untell(told)
	}
	return a
}

// settle enters the verdicts on entries, and takes those out of list that are settled. It
// reports whether none is left.
func (s *sender) settle(list []*entry, verdicts []string) (done bool) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	done = true
	for i, e := range list {
		switch {
		case e == nil:
			continue
		case verdicts[i] == "retry":
			done = false
			continue
		case verdicts[i] == "drop":
			r.drop(Rejected, 1)
		default:
			r.acked++
		}
		list[i] = nil
		e.free()
	}
	return done
}

// drop drops what is left of entries.
func (s *sender) drop(list []*entry, why Reason) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	n := int64(0)
	for _, e := range list {
		if e != nil {
			n++
			e.free()
		}
	}
	s.r.drop(why, n)
}
