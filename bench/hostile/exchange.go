package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// patience is how long an answer may take. A slow row waits for readTimeout, twice.
	patience = 30 * time.Second
	probe    = "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
)

// seen is what became of a row.
type seen struct {
	answers  []string // in the form of row.want
	raw      []string // the same as text, for the search for secrets
	accepted int64
	connEnd  connEnd
	problem  string // what no row may show: a reset, an answer that is no HTTP
	closing  bool   // the last answer said that the connection ends with it
}

func (s *seen) String() string {
	text := strings.Join(s.answers, " | ") + ", " + s.connEnd.String()
	if s.problem != "" {
		text += ", " + s.problem
	}
	return text
}

// exchange sends pieces on a connection of their own and reads what comes back:
// as many answers as are wanted, and then whether the connection goes on.
func exchange(addr string, pieces []piece, want []string) *seen {
	s := &seen{}
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		s.problem = err.Error()
		return s
	}
	defer func() { _ = c.Close() }()
	written := make(chan error, 1)
	go func() {
		for _, p := range pieces {
			if _, err := io.WriteString(c, p.text); err != nil {
				written <- err // a server may stop reading; its answer says why
				return
			}
			time.Sleep(p.pause)
		}
		written <- nil
	}()
	first, _, _ := strings.Cut(pieces[0].text, " ")
	in := bufio.NewReader(c)
	_ = c.SetReadDeadline(time.Now().Add(patience)) // reading tells what a closed socket would
	for range want {
		if !s.read(in, first) {
			s.connEnd = closed
			return s
		}
	}
	s.last(c, in, <-written)
	return s
}

// read adds one answer; false when there is none.
func (s *seen) read(in *bufio.Reader, method string) bool {
	resp, err := http.ReadResponse(in, &http.Request{Method: method})
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		s.answers = append(s.answers, "none")
		return false
	case err != nil:
		s.problem = "no answer: " + err.Error()
		return false
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.problem = "answer cut short: " + err.Error()
		return false
	}
	text, accepted := render(resp, body)
	s.answers, s.accepted = append(s.answers, text), s.accepted+accepted
	s.raw = append(s.raw, fmt.Sprint(resp.Header, string(body)))
	s.closing = resp.Close
	return true
}

// last finds out the connEnd: a server that said it closes has to, without a
// reset (which whatever is sent to a closed socket would bring about); on any
// other connection a further request has to be answered.
func (s *seen) last(c net.Conn, in *bufio.Reader, writeErr error) {
	if writeErr == nil && !s.closing {
		_, writeErr = io.WriteString(c, probe)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodGet})
	switch {
	case err == nil:
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			s.problem = "answer cut short: " + err.Error()
			return
		}
		if text, _ := render(resp, body); text != "200 status=ok" {
			s.problem = "one more answer than wanted, or the wrong one: " + text
		}
	case errors.Is(err, syscall.ECONNRESET):
		s.connEnd, s.problem = closed, "reset"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		s.connEnd = closed
	default:
		s.problem = "the connection hangs: " + err.Error()
	}
	if s.connEnd == kept && writeErr != nil {
		s.problem = "cannot send: " + writeErr.Error()
	}
}

// render is an answer in the form of row.want, and how many entries it says
// were accepted.
func render(resp *http.Response, body []byte) (text string, accepted int64) {
	parts := []string{strconv.Itoa(resp.StatusCode)}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	var b struct {
		Scope, Outcome string
		Error          any    // a text; of others anything
		Status         any    // text of a probe, 1 of PostHog and Mixpanel
		Code           any    // text of Segment and PostHog, the status of Amplitude, whose error is prose
		Success        *bool  // of Segment
		Ingested       *int64 `json:"events_ingested"`
		Accepted       *int64
		Evicted        int64
		Results        []struct {
			I              int
			Result, Reason string
		}
	}
	isJSON := resp.Header.Get("Content-Type") == "application/json"
	switch {
	case resp.Header.Get("Content-Type") == "application/json; charset=utf-8":
		said, published := renderLmstfy(body)
		if said != "" {
			add("%s", said)
		}
		return strings.Join(parts, " "), published
	case isJSON && len(body) > 0 && json.Unmarshal(body, &b) != nil:
		add("malformed body %q", body)
	case len(body) > 0 && !isJSON && resp.StatusCode >= 400:
		add("text")
	}
	switch code := b.Code.(type) {
	case string:
		add("%s", code)
	case nil:
		if text, ok := b.Error.(string); ok && b.Status == nil {
			add("%s", text)
		}
	}
	switch status := b.Status.(type) {
	case string:
		add("status=%s", status)
	case float64:
		if status == 1 {
			b.Accepted = new(int64(1)) // PostHog counts nothing
		}
	}
	if n := acceptedOf(resp, body); n > 0 {
		b.Accepted = new(n)
	}
	if b.Ingested != nil {
		b.Accepted = b.Ingested
	} else if b.Success != nil && *b.Success {
		b.Accepted = new(int64(1)) // nor does Segment
	}
	for _, f := range [][2]string{{"scope", b.Scope}, {"outcome", b.Outcome}} {
		if f[1] != "" {
			add("%s=%s", f[0], f[1])
		}
	}
	switch {
	case b.Accepted != nil:
		accepted = *b.Accepted
		add("accepted=%d", accepted)
	case resp.StatusCode == http.StatusNoContent && resp.Header.Get("Allow") == "": // not OPTIONS
		accepted = 1 // rows that ask for these send one entry
	}
	if b.Evicted > 0 {
		add("evicted=%d", b.Evicted)
	}
	for _, r := range b.Results {
		add("%d:%s/%s", r.I, r.Result, r.Reason)
	}
	for _, name := range []string{"Allow", "Accept-Encoding", "Access-Control-Allow-Origin"} {
		if value := resp.Header.Get(name); value != "" {
			add("%s=%s", name, strings.ReplaceAll(value, " ", ""))
		}
	}
	if after := resp.Header.Get("Retry-After"); after != "" {
		if n, err := strconv.Atoi(after); err != nil || n < 1 {
			add("bad Retry-After %q", after)
		} else {
			add("Retry-After")
		}
	}
	if server := resp.Header.Get("Server"); server != "" {
		add("Server=%s", server)
	}
	return strings.Join(parts, " "), accepted
}

// adapterAnswers begin answers of other vendors that count nothing: each is for one good event.
var adapterAnswers = []string{"{}", `{"partialSuccess"`, `{"text":"Success"`, `{"RecordId"`, `{"SequenceNumber"`, `{"FailedPutCount":0`,
	`{"FailedRecordCount":0`, `{"requestId"`, `{"code":200,"status":"OK"`, `{"code":400,"status":"Bad Request"`, "ok", "GIF89a"}

// acceptedOf is how many entries an answer of another vendor says were accepted; 0: it does not say.
func acceptedOf(resp *http.Response, body []byte) int64 {
	if bytes.HasPrefix(body, []byte(`{"took"`)) {
		return int64(bytes.Count(body, []byte(`"status":201`)))
	}
	isSure := resp.StatusCode == http.StatusOK || bytes.Contains(body, []byte(`"num_records_imported":1`))
	if isSure && len(body) == 0 && resp.Header.Get("Content-Type") == "application/x-protobuf" {
		return 1
	}
	for _, begin := range adapterAnswers {
		if isSure && bytes.HasPrefix(body, []byte(begin)) {
			return 1
		}
	}
	return 0
}
