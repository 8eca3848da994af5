package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/lua/redistest"
)

// A world is the programs of a game: they report events and jobs to whichever service the balancer
// names, and each must be answered 200.
type world struct {
	t        *testing.T
	service  atomic.Pointer[server] // that the balancer names
	stop     func() map[*server]*reports
	rejected atomic.Int64 // requests that were answered 503: nothing was stored
	unknown  atomic.Int64 // and those that may have been
	still    func() bool  // see stoodStill
}

// reports are what a service answered 200.
type reports struct{ events, jobs atomic.Int64 }

const (
	senders  = 8
	eachJob  = 10  // requests; the others report events
	delayed  = 100 // jobs; one of so many is delayed
	forDelay = "1s"
)

// perSecond is how many requests they make where the machine can. What fails between two answers fails
// at a fifth of the load too, but more rarely.
func perSecond() int {
	if testing.Short() {
		return 600
	}
	return 3000
}

// play starts the programs, on a service.
func play(t *testing.T, on *server) *world {
	w := &world{t: t, still: stoodStill(t)}
	w.service.Store(on)
	ctx, cancel := context.WithCancel(t.Context())
	var by sync.Map
	var running sync.WaitGroup
	for i := range senders {
		running.Go(func() {
			tick := time.NewTicker(time.Second * senders / time.Duration(perSecond()))
			defer tick.Stop()
			for n := i; ctx.Err() == nil; n += senders {
				s := w.service.Load()
				path, body := fmt.Sprintf("/v1/kart/p%d", n%50), fmt.Sprint(n)
				if n/senders%eachJob == 0 {
					path = "/v1/mail/welcome"
					if n/senders%delayed == 0 {
						path += "?delay=" + forDelay
					}
				}
				resp, err := http.Post("http://"+s.data+path, "application/json", strings.NewReader(body))
				if err != nil {
					t.Errorf("request %d: %v", n, err)
					return
				}
				answer, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusServiceUnavailable {
					if bytes.Contains(answer, []byte("outcome")) {
						w.unknown.Add(1)
					} else {
						w.rejected.Add(1)
					}
					<-tick.C
					continue
				}
				if resp.StatusCode != http.StatusOK {
					t.Errorf("request %d: %s %s", n, resp.Status, answer)
					return
				}
				got, _ := by.LoadOrStore(s, &reports{})
				if strings.Contains(path, "mail") {
					got.(*reports).jobs.Add(1)
				} else {
					got.(*reports).events.Add(1)
				}
				<-tick.C
			}
		})
	}
	w.stop = sync.OnceValue(func() map[*server]*reports {
		cancel()
		running.Wait()
		all := map[*server]*reports{}
		by.Range(func(s, r any) bool { all[s.(*server)] = r.(*reports); return true })
		return all
	})
	t.Cleanup(func() { w.stop() })
	return w
}

// goOn waits until a service has stored what comes in a sixth of a second.
func (w *world) goOn(s *server) {
	w.t.Helper()
	before := s.ledgerOf("kart").Accepted
	eventually(w.t, "events arrive", func() bool { return w.t.Failed() || s.ledgerOf("kart").Accepted >= before+int64(perSecond()/6) })
}

// worker does the jobs of a service until its test ends. Each counts once.
func worker(t *testing.T, s *server) (done func() int) {
	t.Helper()
	jobs, err := sdk.NewQueues("http://"+s.data, sdk.QueuesConfig{Namespace: "mail"})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]int{}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait(); jobs.Close() })
	running.Go(func() {
		for ctx.Err() == nil {
			claimed, err := jobs.Claim(ctx, []string{"welcome"}, sdk.ClaimOptions{Count: 100, Wait: time.Second, TTR: 10 * time.Minute})
			if err != nil && ctx.Err() == nil {
				t.Errorf("claim: %v", err)
				return
			}
			for _, j := range claimed {
				if err := jobs.Ack(context.WithoutCancel(ctx), j); err != nil {
					t.Errorf("ack: %v", err)
				}
				mu.Lock()
				if seen[string(j.Payload)]++; seen[string(j.Payload)] > 1 {
					t.Errorf("job %s comes again", j.Payload)
				}
				mu.Unlock()
			}
		}
	})
	return func() int { mu.Lock(); defer mu.Unlock(); return len(seen) }
}

// jobs is the ledger of mail, and by how much an audit differs, which counts while jobs go on.
func (s *server) jobs() (l jobLedger, residual int64) {
	s.t.Helper()
	resp, err := http.Get("http://" + s.admin + "/api/v1/namespaces/mail?audit=1")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var found struct {
		Ledger   jobLedger
		Residual int64
	}
	if err := json.NewDecoder(resp.Body).Decode(&found); err != nil {
		s.t.Fatal(err)
	}
	return found.Ledger, found.Residual
}

// agrees checks a figure against what was answered 200: beyond it is only what is of unknown outcome.
func (w *world) agrees(what string, got, answered int64) {
	w.t.Helper()
	if got < answered || got > answered+w.unknown.Load() {
		w.t.Errorf("%s: %d, and %d were answered 200, %d of unknown outcome", what, got, answered, w.unknown.Load())
	}
}

// empty waits until a service holds nothing any more, and checks that its ledgers have what it answered.
func (w *world) empty(s *server, events, jobs int64) {
	s.t.Helper()
	eventually(s.t, "all is delivered", func() bool { return s.ledgerOf("kart").Buffered == 0 })
	eventually(s.t, "no job is left", func() bool { l, _ := s.jobs(); return l.Acked+l.Deleted == l.Published })
	l := s.ledgerOf("kart")
	w.agrees("events accepted", l.Accepted, events)
	if l.Delivered != l.Accepted {
		s.t.Errorf("%d events of %d are delivered", l.Delivered, l.Accepted)
	}
	queues, residual := s.jobs()
	w.agrees("jobs published", queues.Published, jobs)
	if residual != 0 {
		s.t.Errorf("the ledger has %+v, an audit differs by %d", queues, residual)
	}
}

// serveGame starts a service of events and jobs, whose events go to a file.
func serveGame(t *testing.T, redis, file string, args ...string) *server {
	t.Helper()
	return serveFile(t, fmt.Sprintf(`redis: %s
pools: {default: {volatile: true}}
linger: 50ms
shards: auto
sink: file://%s
namespaces:
  kart: {}
  mail: {kind: queue, shards: auto}
`, redis, file), args...).server
}

// operating is the command of the recipe in OPERATING that begins so, with its addresses replaced.
func operating(t *testing.T, begins string, addresses ...string) []string {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, recipe, _ := strings.Cut(string(text), "\n### Another Redis, or more shards\n")
	_, command, found := strings.Cut(recipe, "\n       spillway "+begins)
	if !found {
		t.Fatalf("the recipe has no command that begins with %s", begins)
	}
	command, _, _ = strings.Cut(begins+command, "\n")
	return strings.Fields(strings.NewReplacer(addresses...).Replace(command))
}

// The recipe of OPERATING, "Another Redis, or more shards".
func TestAServiceGrowsFromOneRedisToThreeMasters(t *testing.T) {
	t.Parallel()
	redis, dir := redistest.Start(t).URL(), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	old := serveGame(t, redis, file("old"))
	w := play(t, old)
	w.goOn(old)

	grown := serveGame(t, redistest.StartMasters(t, 3).URL(), file("new"))
	done := worker(t, grown)
	w.service.Store(grown)
	w.goOn(grown)
	moving := exec.Command(binary, operating(t, "jobs move mail", "10.0.0.1:8080", old.data, "10.0.0.2:8080", grown.data)...)
	moving.Stderr = old.log
	proc.KillWithParent(moving)
	if err := moving.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old service has no jobs", func() bool { l, _ := old.jobs(); return l.Acked+l.Deleted == l.Published })
	if err := moving.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := moving.Wait(); err != nil {
		t.Errorf("move: %v", err)
	}
	moved, _ := old.jobs()
	if code := old.terminate(); code != 0 {
		t.Errorf("exit %d", code)
	}
	draining := serveGame(t, redis, file("drain"), "--role", "drain")
	w.goOn(grown)

	answered := w.stop()
	if n := w.rejected.Load() + w.unknown.Load(); n > 0 && !w.still() {
		t.Errorf("%d requests were answered 503, and the machine never stood still", n)
	}
	w.empty(draining, answered[old].events.Load(), answered[old].jobs.Load())
	ls := exec.Command(binary, operating(t, "ls kart", "10.0.0.1:8081", draining.admin)...)
	if left, err := ls.Output(); err != nil || len(left) != 0 {
		t.Errorf("partitions of the old service: %v\n%s", err, left)
	}
	w.empty(grown, answered[grown].events.Load(), answered[grown].jobs.Load()+moved.Published)
	total := answered[old].jobs.Load() + answered[grown].jobs.Load()
	w.agrees("jobs done", int64(done()), total)
	entries := map[string]bool{}
	for _, name := range []string{"old", "drain", "new"} {
		text, err := os.ReadFile(file(name))
		if err != nil && name != "drain" { // which had nothing left to write, perhaps
			t.Fatal(err)
		}
		for _, l := range parseLines(t, text) {
			entries[string(l.Data)] = true
		}
	}
	w.agrees("entries at the sink", int64(len(entries)), answered[old].events.Load()+answered[grown].events.Load())
	t.Logf("%d events and %d jobs before, %d and %d after", answered[old].events.Load(), answered[old].jobs.Load(),
		answered[grown].events.Load(), answered[grown].jobs.Load())
}

// Growing further is Redis's own: slots move to another master while all are in use.
func TestSlotsMoveToAnotherMasterUnderLoad(t *testing.T) {
	t.Parallel()
	cluster, file := redistest.StartMasters(t, 3), filepath.Join(t.TempDir(), "out")
	s := serveGame(t, cluster.URL(), file)
	done := worker(t, s)
	w := play(t, s)
	w.goOn(s)
	moves, longest := 0, time.Duration(0)
	seen := map[int64]bool{}
	source := cluster.Masters[0].Client()
	for _, key := range source.Keys(t.Context(), "*").Val() {
		if slot := source.ClusterKeySlot(t.Context(), key).Val(); !seen[slot] {
			seen[slot] = true
			began := time.Now()
			cluster.MoveSlot(t, key, 0, 1+moves%2)
			longest = max(longest, time.Since(began))
			moves++
			w.goOn(s)
		}
	}
	if moves < 2 {
		t.Errorf("%d slots were in use on the master", moves)
	}
	answered := w.stop()[s]
	// A slot that takes longer than a call may wait is one of a machine that stands still.
	if n := w.rejected.Load() + w.unknown.Load(); n > 0 && longest < time.Second && !w.still() {
		t.Errorf("%d requests were answered 503, and no slot took longer than %v", n, longest)
	}
	w.empty(s, answered.events.Load(), answered.jobs.Load())
	w.agrees("jobs done", int64(done()), answered.jobs.Load())
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]bool{}
	for _, l := range parseLines(t, text) {
		entries[string(l.Data)] = true
	}
	w.agrees("entries at the sink", int64(len(entries)), answered.events.Load())
	t.Logf("%d slots moved under %d events and %d jobs", moves, answered.events.Load(), answered.jobs.Load())
}
