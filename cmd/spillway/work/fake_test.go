//go:build linux

package work

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/lua/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv("TEST_CHILD") != "" {
		runChild(os.Getenv("TEST_CHILD"))
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // those of libraries
}

// A verdict is a line of a settle.
type verdict struct {
	ID, Do   string
	Error    string
	Attempt  int
	MS       int64
	Deadline int64 `json:"deadline_ms"`
}

// fake is a service of which a test decides what it has and says.
type fake struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	ready    []map[string]any
	jobs     map[string]map[string]any
	verdicts map[string][]verdict // by job, without touches and requeues
	requeued map[string]verdict
	touches  map[string]int
	lost     map[string]bool // jobs that are leased to somebody else
	restart  string
	about    string // what the last claim said of the worker
	claims   int    // under way
	oldest   int64  // ms
	down     int    // that many settles fail
	status   int    // of claims; 0: 200
	next     int
}

func newFake(t testing.TB) *fake {
	f := &fake{t: t, verdicts: map[string][]verdict{}, requeued: map[string]verdict{}, jobs: map[string]map[string]any{}, touches: map[string]int{}, lost: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/mail/{queues}/claim", f.claim)
	mux.HandleFunc("POST /v1/mail/{queue}/settle", f.settle)
	mux.HandleFunc("GET /v1/mail/{queue}", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		fmt.Fprintf(w, `{"ready":1,"delayed":0,"leased":0,"oldest_age_ms":%d}`, f.oldest)
	})
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

// publish makes a job ready, and returns its id. php is what the service says of a job of PHP.
func (f *fake) publish(payload string, attempt, tries int, php map[string]any) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	id := fmt.Sprint("job", f.next)
	j := map[string]any{"queue": "welcome", "id": id, "attempt": attempt, "tries": tries, "data": []byte(payload), "deadline_ms": 1000 + f.next}
	if php != nil {
		j["php"] = php
	}
	f.jobs[id] = j
	f.ready = append(f.ready, j)
	return id
}

func (f *fake) claim(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.claims++
	f.about = r.Header.Get("X-Spillway-Worker")
	status := f.status
	f.mu.Unlock()
	defer func() { f.mu.Lock(); f.claims--; f.mu.Unlock() }()
	if status != 0 {
		http.Error(w, `{"error":"unauthorized","message":"no"}`, status)
		return
	}
	count, err := strconv.Atoi(r.URL.Query().Get("count"))
	if err != nil || count < 1 {
		f.t.Errorf("count is %d, %v", count, err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(300 * time.Millisecond); ; <-tick.C {
		f.mu.Lock()
		n := min(count, len(f.ready))
		jobs, restart := append([]map[string]any{}, f.ready[:n]...), f.restart
		if r.Context().Err() == nil {
			f.ready = f.ready[n:]
		}
		f.mu.Unlock()
		if n > 0 || r.Context().Err() != nil || time.Now().After(end) {
			if restart != "" {
				w.Header().Set("X-Spillway-Restart", restart)
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"jobs": jobs})
			return
		}
	}
}

func (f *fake) settle(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down > 0 {
		f.down--
		http.Error(w, `{"error":"store_unavailable"}`, http.StatusServiceUnavailable)
		return
	}
	var results []map[string]string
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		var v verdict
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			f.t.Error(err)
		}
		state := "acked"
		if f.lost[v.ID] {
			state = "gone"
		}
		switch v.Do {
		case "touch":
			f.touches[v.ID]++
		case "requeue":
			f.requeued[v.ID] = v
			f.ready = append([]map[string]any{f.jobs[v.ID]}, f.ready...)
		default:
			f.verdicts[v.ID] = append(f.verdicts[v.ID], v)
		}
		results = append(results, map[string]string{"state": state})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"results": results})
}

// change changes the fake.
func (f *fake) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// told waits for what became of a job.
func (f *fake) told(id string) (v verdict) {
	f.t.Helper()
	f.until("a verdict on "+id, func() bool {
		if len(f.verdicts[id]) == 0 {
			return false
		}
		v = f.verdicts[id][0]
		return true
	})
	return v
}

// until waits until something holds.
func (f *fake) until(what string, holds func() bool) {
	f.t.Helper()
	redistest.Until(f.t, 20*time.Second, what, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return holds()
	})
}

// A rig is a worker that runs.
type rig struct {
	*worker
	logs   *observer.ObservedLogs
	stop   func() error // and waits
	waited func() error
}

// parse is the command with flags; what is after -- is the program.
func parse(t testing.TB, args ...string) *Command {
	t.Helper()
	var c Command
	parser, err := kong.New(&c)
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

// start runs a worker of children of this binary that behave as said. flags may have a program of its own, after --.
func (f *fake) start(behaviour string, flags ...string) *rig {
	f.t.Helper()
	args := append([]string{"mail", "welcome", "--server", f.URL, "--token", "s3cret", "--env", "TEST_CHILD=" + behaviour, "--env", "GORACE=atexit_sleep_ms=0", "--backoff", "10ms..20ms"}, flags...)
	if behaviour == "each" {
		args = append([]string{"--mode", "each"}, args...)
	}
	if !strings.Contains(strings.Join(flags, " "), "-- ") {
		args = append(args, "--", os.Args[0])
	}
	s, err := parse(f.t, args...).check([]string{"PATH=" + os.Getenv("PATH"), "SPILLWAY_TOKEN=s3cret", "AWS_SECRET=x", "APP_ENV=test"})
	if err != nil {
		f.t.Fatal(err)
	}
	core, logs := observer.New(zapcore.DebugLevel)
	w, err := newWorker(s, "v1", zap.New(core))
	if err != nil {
		f.t.Fatal(err)
	}
	r := &rig{worker: w, logs: logs}
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	var ended error
	go func() { ended = r.run(ctx); close(done) }()
	r.waited = func() error { <-done; return ended }
	r.stop = func() error {
		cancel()
		defer w.http.(*http.Transport).CloseIdleConnections()
		return r.waited()
	}
	f.t.Cleanup(func() {
		_ = r.stop()
		if f.t.Failed() {
			for _, e := range logs.All() {
				f.t.Log(e.Message, e.ContextMap())
			}
		}
	})
	return r
}

// says waits for an event of the log, and returns its fields.
func (r *rig) says(t testing.TB, message string) (fields map[string]any) {
	t.Helper()
	redistest.Until(t, 20*time.Second, "the log says "+message, func() bool {
		found := r.logs.FilterMessage(message).All()
		if len(found) == 0 {
			return false
		}
		fields = found[0].ContextMap()
		return true
	})
	return fields
}
