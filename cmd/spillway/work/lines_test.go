//go:build linux

package work

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/lua/redistest"
)

var php = map[string]any{"id": "x", "job": "App\\Jobs\\Plain@fire"}

func TestWhatTheChildAnswersBecomesOfTheJob(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.start("lines", "--children", "2", "--ttr", "30s")
	for _, row := range []struct {
		payload        string
		attempt, tries int
		php            map[string]any
		do             string
		least, most    int64 // ms
	}{
		{`{"do":"delete"}`, 1, 3, nil, "ack", 0, 0},
		{`{"do":"failed"}`, 1, 3, nil, "bury", 0, 0},
		{`{"do":"release"}`, 3, 5, nil, "nack", 0, 20},
		{`{"do":"release","delay":1.5}`, 1, 3, nil, "nack", 1500, 1500},
		{`{"do":"release","delay":0}`, 9, 0, php, "release", 0, 0},
		{`{"do":"release","delay":-5}`, 1, 0, php, "release", 0, 0},
		{`{"do":"release","delay":1e300}`, 1, 0, php, "release", maxDelay.Milliseconds(), maxDelay.Milliseconds()},
		{`{"do":"forgot"}`, 1, 1, php, "release", 30000, 30000},
		{`{"do":"forgot"}`, 1, 1, nil, "nack", 30000, 30000},
		{`{"act":"die"}`, 1, 3, nil, "nack", 0, 20},
		{`{"act":"die"}`, 1, 1, php, "release", 0, 20},
		{`{"act":"die"}`, 2, 1, php, "bury", 0, 0},
		{`{"act":"answer and die","do":"delete"}`, 1, 1, php, "ack", 0, 0},
		{`{"act":"noise","do":"delete"}`, 1, 1, nil, "ack", 0, 0},
		{`{"act":"mute"}`, 1, 3, nil, "nack", 0, 20},
		{"\xff\x00not text", 1, 3, nil, "ack", 0, 0},
	} {
		v := f.told(f.publish(row.payload, row.attempt, row.tries, row.php))
		if v.Do != row.do || v.MS < row.least || v.Do != "bury" && v.MS > row.most || v.Attempt != row.attempt {
			t.Errorf("%s, attempt %d of %d, php %t: got %+v, want %s in %d to %d ms", row.payload, row.attempt, row.tries, row.php != nil, v, row.do, row.least, row.most)
		}
	}
	f.change(func() {
		for id, all := range f.verdicts {
			if len(all) != 1 {
				t.Errorf("%s: got %+v", id, all)
			}
		}
	})
}

func TestTheChildGetsALineAndNoSecrets(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	events := make(chan string, 100)
	hook := serveHook(t, events)
	r := f.start("lines", "--env", "APP_*", "--env", "OWN=1 2", "--tries", "4", "--hook", hook)
	file := filepath.Join(t.TempDir(), "told")
	payload, _ := json.Marshal(map[string]any{"act": "tell", "file": file, "secret": "p4yload"})
	id := f.publish(string(payload), 2, 0, map[string]any{"timeout_ms": 1500})
	f.told(id)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	told := strings.Split(strings.TrimSpace(string(text)), "\n")
	line, args, env := told[len(told)-1], told[len(told)-2], told[:len(told)-2]
	slices.Sort(env)
	if want := []string{"APP_ENV=test", "GORACE=atexit_sleep_ms=0", "OWN=1 2", "PATH=" + os.Getenv("PATH"), "TEST_CHILD=lines"}; !slices.Equal(env, want) || args != os.Args[0] {
		t.Errorf("got the environment %q, the arguments %q", env, args)
	}
	quoted, _ := json.Marshal(string(payload))
	if want := `{"v":1,"seq":"` + id + `:2","queue":"welcome","attempts":2,"tries":4,"backoff":1,"timeout":1.5,"payload":` + string(quoted) + `}`; line != want {
		t.Errorf("got  %s\nwant %s", line, want)
	}
	if said := r.says(t, "child says"); said["message"] != "I work" || said["seq"] != id+":2" {
		t.Errorf("got %v", said)
	}
	if said := r.says(t, "child prints"); said["line"] != "on stdout" || said["stream"] != int64(1) {
		t.Errorf("got %v", said)
	}
	f.change(func() {
		var about struct {
			Name, Version          string
			Children, Busy, Memory int
		}
		if err := json.Unmarshal([]byte(f.about), &about); err != nil || about.Children != 1 || about.Version != "v1" || about.Name != r.Name || len(f.about) > 1<<10 {
			t.Errorf("got %s, %v", f.about, err)
		}
	})
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	var names []string
	for len(events) > 0 {
		var e event
		if err := json.Unmarshal([]byte(<-events), &e); err != nil {
			t.Fatal(err)
		}
		if names = append(names, e.Event); e.Event == "child" && string(e.Data) != `{"do":"event","name":"mine"}` || e.Event == "before_job" && (e.Label != "worker_before_process" || e.Job != id) {
			t.Errorf("got %+v", e)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "sleep" })
	if want := []string{"worker_start", "before_job", "child", "after_job", "stop"}; !slices.Equal(names, want) {
		t.Errorf("got the events %q, want %q", names, want)
	}
}

// On a slow machine few processes have started by the timeout, and another job gets more time.
func TestATimeoutKillsAllOfTheGroup(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r := f.start("lines", "--timeout", "1h")
	kills, pids := 0, []string(nil)
	for limit := 500; len(pids) < 10; limit *= 2 {
		kills++
		file := filepath.Join(t.TempDir(), "pids")
		payload, _ := json.Marshal(map[string]any{"act": "bomb", "file": file})
		if v := f.told(f.publish(string(payload), 1, 3, map[string]any{"timeout_ms": limit})); v.Do != "release" {
			t.Errorf("got %+v", v)
		}
		text, _ := os.ReadFile(file) // absent where none has started
		pids = strings.Fields(string(text))
		for _, pid := range pids {
			awaitGone(t, pid)
		}
	}
	if v := f.told(f.publish("{}", 1, 3, nil)); v.Do != "ack" {
		t.Errorf("got %+v", v)
	}
	if n := testutil.ToFloat64(r.metrics.killed.WithLabelValues("timeout")); n != float64(kills) {
		t.Errorf("%v were killed, want %d", n, kills)
	}
}

// awaitGone waits for the end of a process.
func awaitGone(t *testing.T, pid string) {
	t.Helper()
	redistest.Until(t, 20*time.Second, "process "+pid+" has ended", func() bool {
		n, _ := strconv.Atoi(pid)
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return errors.Is(syscall.Kill(n, 0), syscall.ESRCH) || err == nil && strings.Contains(string(stat), ") Z ")
	})
}

func TestAChildThatHangsOrIsStoppedIsKilledAtTheTimeoutOfTheJob(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.start("lines", "--timeout", "1h", "--children", "3", "--term", "100ms")
	limit := map[string]any{"timeout_ms": 200}
	for _, act := range []string{"hang", "stop"} {
		if v := f.told(f.publish(`{"act":"`+act+`"}`, 1, 1, limit)); v.Do != "release" {
			t.Errorf("%s: got %+v", act, v)
		}
		if v := f.told(f.publish(`{"act":"`+act+`"}`, 2, 1, limit)); v.Do != "bury" {
			t.Errorf("%s again: got %+v", act, v)
		}
	}
}

func TestAProcessThatKeepsThePipesHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.start("lines")
	file := filepath.Join(t.TempDir(), "end")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	payload, _ := json.Marshal(map[string]any{"act": "leave", "file": file})
	left, next := f.publish(string(payload), 1, 3, nil), f.publish("{}", 1, 3, nil)
	if a, b := f.told(left), f.told(next); a.Do != "nack" || b.Do != "ack" {
		t.Errorf("got %+v, %+v", a, b)
	}
	end, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = end.Close()
}

// Children that do not run: no job is claimed for them, and they are started less and less often.
func TestACrashLoopBacksOffAndFailsReadiness(t *testing.T) {
	t.Parallel()
	for _, behaviour := range []string{"crash", "silent", "mute", "no such program"} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			flags := []string{"--start-timeout", "300ms", "--metrics", redistest.FreeAddr(t)}
			if behaviour == "no such program" {
				flags = append(flags, "--", "/no/such/program")
			}
			r := f.start(behaviour, flags...)
			f.publish("{}", 1, 1, nil)
			redistest.Until(t, 20*time.Second, "the second start fails", func() bool {
				return r.logs.FilterMessage("child does not run").Len() >= 2
			})
			if behaviour == "silent" {
				if hint, _ := r.says(t, "a child is not ready yet")["error"].(string); !strings.Contains(hint, "--mode each") {
					t.Errorf("got %q", hint)
				}
			}
			all := r.logs.FilterMessage("child does not run").All()
			if a, b := all[0].ContextMap()["again_in"], all[1].ContextMap()["again_in"]; a != time.Second || b != 2*time.Second {
				t.Errorf("waits %v, then %v", a, b)
			}
			if got := get(t, r.Metrics, "/readyz"); !strings.Contains(got, "503 1 children crash") {
				t.Errorf("got %s", got)
			}
			if got := get(t, r.Metrics, "/metrics"); !strings.Contains(got, `spillway_work_children{state="failing"} 1`) {
				t.Errorf("got %s", got)
			}
			f.change(func() {
				if f.claims != 0 || len(f.ready) != 1 {
					t.Error("a job was claimed")
				}
			})
		})
	}
}

func get(t *testing.T, address, path string) string {
	t.Helper()
	response, err := http.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var text strings.Builder
	if _, err := fmt.Fprint(&text, response.StatusCode, " "); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 1<<20)
	for {
		n, err := response.Body.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			return text.String()
		}
	}
}

func TestChildrenThatDieInTheirJobsAreACrashLoop(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r := f.start("lines")
	for range maxDeaths {
		f.publish(`{"act":"die"}`, 1, 9, nil)
	}
	if said := r.says(t, "child does not run"); said["again_in"] != time.Second {
		t.Errorf("got %v", said)
	}
	if v := f.told(f.publish("{}", 1, 9, nil)); v.Do != "ack" {
		t.Errorf("got %+v", v)
	}
}

// A child that reads no jobs: none of them counts as tried.
func TestAJobThatNoChildReadsGoesBackUncounted(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.start("deaf")
	id := f.publish("{}", 1, 3, nil)
	f.until("it goes back", func() bool { return f.requeued[id].Deadline == 1001 && len(f.verdicts) == 0 })
}

func TestAJobThatKillsWhoReadsItIsCounted(t *testing.T) {
	t.Parallel()
	for _, size := range []int{2, 40 << 10, 300 << 10} { // pipes have 64 KiB
		f := newFake(t)
		f.start("overread")
		id := f.publish(strings.Repeat("x", size), 1, 3, nil)
		if v := f.told(id); v.Do != "nack" || v.Error != "the child ended in the job: exit status 7" {
			t.Errorf("%d bytes: got %+v", size, v)
		}
		f.change(func() {
			if len(f.requeued) > 0 {
				t.Errorf("%d bytes: it went back uncounted", size)
			}
		})
	}
}

// The lease is touched each third of its ttr, and the machine may stand still for as long.
func TestALeaseIsRenewedUntilItIsLost(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r := f.start("lines", "--ttr", "9s", "--timeout", "0s")
	id := f.publish(`{"act":"hang"}`, 1, 3, nil)
	f.change(func() { f.lost[id] = true }) // as the first touch learns
	if said := r.says(t, "child is ended"); said["why"] != "gone" {
		t.Errorf("got %v", said)
	}
	if v := f.told(f.publish("{}", 1, 3, nil)); v.Do != "ack" {
		t.Errorf("got %+v", v)
	}
	f.change(func() {
		if v := f.verdicts[id]; v != nil || f.touches[id] == 0 {
			t.Errorf("got %+v after %d touches", v, f.touches[id])
		}
	})
}

func TestVerdictsAreToldAgainUntilTheServiceTakesThem(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.change(func() { f.down = 3 })
	f.start("lines")
	if v := f.told(f.publish("{}", 1, 3, nil)); v.Do != "ack" {
		t.Errorf("got %+v", v)
	}
}

func TestAServiceThatRejectsClaimsEndsTheWorker(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.change(func() { f.status = 401 })
	r := f.start("lines")
	if err := r.waited(); err == nil || !errors.Is(err, spillway.ErrUnauthorized) {
		t.Errorf("got %v", err)
	}
}

func TestChildrenAreReplacedWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	for reason, c := range map[string]struct {
		payload string
		flags   []string
	}{
		"uses":    {"{}", []string{"--max-jobs", "2"}},
		"time":    {"{}", []string{"--max-time", "100ms"}},
		"memory":  {`{"act":"grow"}`, []string{"--memory", "100MB"}},
		"restart": {"{}", nil},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			r := f.start("lines", append([]string{"--children", "2"}, c.flags...)...)
			for n := 0; testutil.ToFloat64(r.metrics.recycled.WithLabelValues(reason)) < 2; n++ {
				if reason == "restart" {
					f.change(func() { f.restart = strconv.Itoa(n) })
				}
				if v := f.told(f.publish(c.payload, 1, 3, nil)); v.Do != "ack" {
					t.Fatalf("got %+v", v)
				}
			}
			if n := testutil.CollectAndCount(r.metrics.killed); n != 0 {
				t.Errorf("%d were killed", n)
			}
		})
	}
}

func TestAChildWithTwiceTheMemoryIsKilledInItsJob(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r := f.start("lines", "--memory", "60MB")
	if v := f.told(f.publish(`{"act":"grow","do":"hang"}`, 1, 3, nil)); v.Do != "nack" {
		t.Errorf("got %+v", v)
	}
	if said := r.says(t, "child is ended"); said["why"] != "memory" {
		t.Errorf("got %v", said)
	}
}

func TestAStopFinishesJobsOrGivesThemBack(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]map[string]any{"PHP's": php, "native": nil} {
		for _, mode := range []string{"lines", "each"} {
			if mode == "each" && of != nil {
				continue // it does none of PHP's
			}
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				f := newFake(t)
				r := f.start(mode, "--drain", "300ms")
				hung, waits := f.publish(`{"act":"hang"}`, 9, 9, of), f.publish("{}", 1, 9, nil) // the first at its last try
				redistest.Until(t, 20*time.Second, "the child has its job", func() bool { return r.busy.Load() == 1 })
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				f.change(func() {
					if v := f.requeued[hung]; v.Do != "requeue" || f.verdicts[hung] != nil {
						t.Errorf("got %+v, then %+v", v, f.verdicts[hung])
					}
					if v := f.verdicts[waits]; v != nil {
						t.Errorf("got %+v", v)
					}
				})
			})
		}
	}
}

func TestAPausedWorkerBeginsNoJob(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r := f.start("lines")
	f.told(f.publish("{}", 1, 3, nil))
	r.pause(true)
	f.until("no claim waits", func() bool { return f.claims == 0 })
	id := f.publish("{}", 1, 3, nil)
	if r.desk.want() != 0 {
		t.Error("it wants jobs")
	}
	r.pause(false)
	if v := f.told(id); v.Do != "ack" {
		t.Errorf("got %+v", v)
	}
}

func TestChildrenAreAddedWhileJobsWait(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r := f.start("lines", "--children", "1..2", "--drain", "0s")
	f.publish(`{"act":"hang"}`, 1, 3, nil)
	f.change(func() { f.oldest = 5000 })
	redistest.Until(t, 20*time.Second, "both have a job", func() bool { f.publish(`{"act":"hang"}`, 1, 3, nil); return r.busy.Load() == 2 })
}
