package deploy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/webhook"
)

// The request in the document is what the webhook sends for the jobs in it, and the answer
// means what the document says.
func TestAPushedBatchIsAsTheDocumentShowsIt(t *testing.T) {
	t.Parallel()
	example := found("(?ms)^```http\n(.*?)^```", read(t, queues))
	answer := found("(?m)^```json\n(\\{\"results\".*)\n```", read(t, queues))
	if len(example) != 1 || len(answer) != 1 {
		t.Fatalf("%d requests and %d answers in %s, want one of each", len(example), len(answer), queues)
	}
	b := jobsOf(t, example[0])
	head, body, _ := strings.Cut(strings.ReplaceAll(example[0], "BATCH", b.ID()), "\n\n")
	want, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n")))
	if err != nil {
		t.Fatal(err)
	}

	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		if r.Method != want.Method || r.URL.Path != want.URL.Path || string(sent) != body {
			t.Errorf("%s %s with\n%swant %s %s with\n%s", r.Method, r.URL, sent, want.Method, want.URL, body)
		}
		for name := range want.Header {
			if got := r.Header.Get(name); got != want.Header.Get(name) {
				t.Errorf("%s: got %q, want %q", name, got, want.Header.Get(name))
			}
		}
		for name := range r.Header {
			if strings.HasPrefix(name, "X-") && want.Header.Get(name) == "" {
				t.Errorf("%s is sent, and not in the document", name)
			}
		}
		_, _ = io.WriteString(w, answer[0])
	}))
	t.Cleanup(receiver.Close)
	target, err := url.Parse(receiver.URL + want.URL.Path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := webhook.New(target)
	if err != nil {
		t.Fatal(err)
	}
	var named *sink.BatchError
	if err := s.Write(t.Context(), []*sink.Batch{b}); !errors.As(err, &named) || len(named.Failed) != 1 || named.Failed[0].Entry != 1 || sink.IsPermanent(named.Failed[0].Err) {
		t.Errorf("got %v, want that the second job comes again", err)
	}
}

// jobsOf makes a batch of the lines of a request.
func jobsOf(t *testing.T, request string) *sink.Batch {
	t.Helper()
	b := &sink.Batch{Deadline: time.Now().Add(time.Hour)}
	for _, line := range found(`(?m)^(\{.*\})$`, request) {
		var l struct {
			Namespace, Partition, ID, Text string
			Seq, TS                        int64
			Attempt, Tries                 int
			Attributes, Data               json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		payload := []byte(l.Data)
		if payload == nil {
			payload = []byte(l.Text)
		}
		b.Namespace, b.Partition, b.Attempt = l.Namespace, l.Partition, max(b.Attempt, l.Attempt)
		b.Entries = append(b.Entries, sink.Entry{Seq: l.Seq, Occurred: l.TS, ID: []byte(l.ID), Payload: payload})
		b.Jobs = append(b.Jobs, sink.Job{Attempt: l.Attempt, Tries: l.Tries, Attributes: bytes.TrimSpace(l.Attributes)})
	}
	if len(b.Entries) != 2 || !regexp.MustCompile(`^[0-9A-Z]{26}$`).Match(b.Entries[0].ID) {
		t.Fatalf("got %+v, want two jobs", b)
	}
	b.FirstSeq = b.Entries[0].Seq
	return b
}
