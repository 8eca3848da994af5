package move

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	spillway "github.com/spillway-io/spillway/ingest/client"
)

// moved is a data port that notes what a move asks.
type moved struct {
	mu      sync.Mutex
	keys    []string
	done    []string
	publish func(n int, key string, w http.ResponseWriter) // its answer to the n-th
	lostAck bool
}

var doWord = regexp.MustCompile(`"do":"(\w+)"`)

func (m *moved) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !strings.HasSuffix(r.URL.Path, "/settle") {
		key := r.Header.Get("Idempotency-Key")
		m.keys = append(m.keys, key)
		m.publish(len(m.keys), key, w)
		return
	}
	body, _ := io.ReadAll(r.Body)
	do := doWord.FindStringSubmatch(string(body))[1]
	m.done = append(m.done, do)
	if m.lostAck && do == "move" {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	_, _ = io.WriteString(w, `{"results":[{"state":"acked"}]}`)
}

func TestAMoveOfPHPsJobsDoublesNoneWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	stored := func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"accepted":1}`) }
	repeated := func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"accepted":1,"repeated":true}`) }
	for name, tt := range map[string]struct {
		publish    func(n int, key string, w http.ResponseWriter)
		lostAck    bool
		keys, done string
	}{
		"stored": {func(_ int, _ string, w http.ResponseWriter) { stored(w) }, false, "[php:7]", "[move]"},
		"another job of the same id": {func(n int, _ string, w http.ResponseWriter) {
			if n == 1 {
				repeated(w)
			} else {
				stored(w)
			}
		}, false, "[php:7 php:7:D1]", "[move]"},
		"stored, and the answer was lost": {func(n int, _ string, w http.ResponseWriter) {
			if n == 1 {
				w.WriteHeader(http.StatusBadGateway)
			} else {
				repeated(w)
			}
		}, false, "[php:7 php:7]", "[bury]"},
		"no answer at all":   {func(_ int, _ string, w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }, false, "[php:7 php:7]", "[release requeue]"},
		"rejected":           {func(_ int, _ string, w http.ResponseWriter) { w.WriteHeader(http.StatusBadRequest) }, false, "[php:7]", "[requeue]"},
		"the ack is unknown": {func(_ int, _ string, w http.ResponseWriter) { stored(w) }, true, "[php:7]", "[move move release requeue]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port := &moved{publish: tt.publish, lostAck: tt.lostAck}
			server := httptest.NewServer(port)
			defer server.Close()
			c, err := spillway.NewQueues(server.URL, spillway.QueuesConfig{Attempts: 2, BackoffBase: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			m := &Move{From: c, To: c, Queue: "a", Target: "b", php: true}
			job := spillway.Job{Queue: "a", ID: "D1", Attempt: 1, Payload: []byte(`{}`), PHP: &spillway.PHPFacts{ID: "7"}}
			_ = m.all(t.Context(), []spillway.Job{job})
			if keys, done := fmt.Sprint(port.keys), fmt.Sprint(port.done); keys != tt.keys || done != tt.done {
				t.Errorf("keys %s, did %s; want %s, %s", keys, done, tt.keys, tt.done)
			}
		})
	}
}
