//go:build linux

package work

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-io/spillway/lua/redistest"
)

// serveHook is a hook that passes events on, and its URL.
func serveHook(t *testing.T, events chan<- string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		events <- string(body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestTheExitCodeSaysWhatBecameOfTheJob(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r := f.start("each", "--children", "2")
	for payload, want := range map[string]string{"0": "ack", "1": "nack", "65": "bury", "75": "nack", "hang": "nack"} {
		limit := map[string]any(nil)
		if payload == "hang" {
			limit = map[string]any{"timeout_ms": 300}
		}
		if v := f.told(f.publish(payload, 2, 3, limit)); v.Do != want || strings.HasPrefix(v.Error, "timeout: ") != (payload == "hang") {
			t.Errorf("%s: got %+v, want %s", payload, v, want)
		}
	}
	id := f.publish("0", 1, 7, php)
	f.told(id)
	redistest.Until(t, 20*time.Second, "its variables are printed", func() bool {
		for _, e := range r.logs.FilterMessage("child prints").All() {
			if line, _ := e.ContextMap()["line"].(string); line == "JOB_QUEUE=welcome JOB_ID="+id+" JOB_ATTEMPT=1 JOB_TRIES=7" && e.ContextMap()["seq"] == id+":1" {
				return true
			}
		}
		return false
	})
	if n := testutil.ToFloat64(r.metrics.killed.WithLabelValues("timeout")); n != 1 {
		t.Errorf("%v were killed", n)
	}
}

func TestAProgramThatCannotBeStartedTakesNoTries(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r := f.start("each", "--mode", "each", "--", "/no/such/program")
	id := f.publish("0", 1, 3, nil)
	f.until("it goes back", func() bool { return f.requeued[id].ID == id && len(f.verdicts) == 0 })
	r.says(t, "child does not run")
}

func TestAJobWhoseAttributesNoEnvironmentHoldsIsCounted(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	id := f.publish("0", 1, 3, nil)
	f.change(func() { f.jobs[id]["attributes"] = map[string]string{"a": strings.Repeat("x", 200<<10)} })
	f.start("each")
	if v := f.told(id); v.Do != "nack" || !strings.Contains(v.Error, "too long") {
		t.Errorf("got %s, %.200s", v.Do, v.Error)
	}
	if v := f.told(f.publish("0", 1, 3, nil)); v.Do != "ack" {
		t.Errorf("the next: got %+v", v)
	}
}

func TestProcessesThatGetJobsThemselvesAreKeptRunning(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r := f.start("self", "--children", "2", "--mode", "self", "--max-time", "2s")
	pid := func(n int) (pid string) {
		redistest.Until(t, 20*time.Second, "child "+strconv.Itoa(n)+" is up", func() bool {
			all := r.logs.FilterMessage("child prints").All()
			if len(all) <= n {
				return false
			}
			line, _ := all[n].ContextMap()["line"].(string)
			_, pid, _ = strings.Cut(line, " ")
			return true
		})
		return pid
	}
	first, second := pid(0), pid(1)
	awaitGone(t, first) // they are due
	awaitGone(t, second)
	third := pid(2)
	if n := testutil.ToFloat64(r.metrics.recycled.WithLabelValues("time")); n < 2 {
		t.Errorf("%v were replaced", n)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	awaitGone(t, third)
}

func TestProcessesThatEndAtOnceAreACrashLoop(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r := f.start("", "--mode", "self", "--", "/bin/false")
	if said := r.says(t, "child does not run"); said["again_in"] != time.Second {
		t.Errorf("got %v", said)
	}
}

func TestAHookNeverHoldsAJobUp(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	file := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	f.start("lines", "--hook", "/bin/cat - "+file) // nobody writes to it
	for range 20 {
		if v := f.told(f.publish("{}", 1, 3, nil)); v.Do != "ack" {
			t.Errorf("got %+v", v)
		}
	}
}

// A program that takes longer than a second for an event is killed, as on a machine that stands still:
// another worker tells it again.
func TestAHookCanBeAProgram(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	file := filepath.Join(t.TempDir(), "events")
	redistest.Until(t, time.Minute, "the program is told of the start and of a job", func() bool {
		r := f.start("lines", "--hook", "/usr/bin/tee -a "+file)
		f.told(f.publish("{}", 1, 3, nil))
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		text, _ := os.ReadFile(file)
		return strings.Contains(string(text), `"event":"worker_start","label":"worker_daemon_start"`) && strings.Contains(string(text), `"event":"after_job"`)
	})
}

func TestUnusableFlagsAreNamed(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"--children=0": "children: ", "--children=4..2": "children: ", "--children=2000": "children: ", "--ttr=1ms": "ttr: ",
		"--timeout=-1s": "timeout, ", "--nice=99": "nice: ", "--user=no-such-user": "user: ", "--env=SPILLWAY_TOKEN": "env: ", "--env=[": "env: ", "--metrics=9109": "metrics: ", "--name=a b": "name: ",
	} {
		if _, err := parse(t, "mail", "welcome", flag, "--", "/bin/true").check(nil); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", flag, err, want)
		}
	}
	if _, err := parse(t, "mail", "welcome", "--", "no-such-program").check(nil); err == nil || !strings.HasPrefix(err.Error(), "program: ") {
		t.Errorf("got %v", err)
	}
	if _, err := parse(t, "mail", "a,,b", "--", "/bin/true").check(nil); err == nil || !strings.HasPrefix(err.Error(), "queues: ") {
		t.Errorf("got %v", err)
	}
}
