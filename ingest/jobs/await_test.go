package jobs

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/job"
)

// awaitingProcess never looks again by itself: only what it is told ends a wait.
func awaitingProcess(t testing.TB, url string) *process {
	t.Helper()
	policy := job.DefaultPolicy()
	policy.Rules = []job.Rule{{Match: "kept", KeepAcked: job.Span(time.Hour)}}
	p := startProcess(t, url, policy, nil)
	p.engine.again = time.Hour
	p.client.Timeout = 0 // waits end by what they are told, or by the end of the test
	return p
}

// awaited is how many jobs of mail are noted as awaited, of all shards.
func awaited(t testing.TB, server *redistest.Server) func() int64 {
	t.Helper()
	client := server.Client()
	t.Cleanup(func() { _ = client.Close() })
	return func() int64 { return client.HLen(t.Context(), "sw:{mail.0}:on_end").Val() }
}

// Who waits for the end of a job is told of each, whichever process ends it.
func TestEveryEndIsToldToWhoWaits(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	noted := awaited(t, redis)
	a, b := awaitingProcess(t, redis.URL()), awaitingProcess(t, redis.URL())
	for _, by := range []*process{a, b} {
		settle := func(do string) func(queue, id string) {
			return func(queue, id string) {
				by.do("POST", "/v1/mail/"+queue+"/claim", "")
				by.do("POST", "/v1/mail/"+queue+"/settle", `{"id":"`+id+`","do":"`+do+`"}`)
			}
		}
		for _, c := range []struct {
			name, queue, want string
			end               func(queue, id string)
		}{
			{"an ack", "q", `"state":"gone"`, settle("ack")},
			{"an ack that is kept", "kept", `"state":"acked"`, settle("ack")},
			{"a bury", "q", `"state":"dead"`, settle("bury")},
			{"the last nack", "q", `"state":"dead"`, settle("nack")},
			{"a delete", "q", `"state":"gone"`, func(queue, id string) { by.do("DELETE", "/v1/mail/"+queue+"/jobs/"+id, "") }},
			{"a purge", "q", `"state":"gone"`, func(queue, _ string) { by.do("DELETE", "/v1/mail/"+queue+"?state=ready", "") }},
			{"a lapse", "q", `"state":"dead"`, func(queue, _ string) { by.do("POST", "/v1/mail/"+queue+"/claim?ttr=1ms", "") }},
		} {
			id := by.do("POST", "/v1/mail/"+c.queue+"?tries=1", "x").IDs[0]
			end := make(chan *reply, 2)
			for range 2 {
				go func() { end <- a.do("GET", "/v1/mail/"+c.queue+"/jobs/"+id+"?wait=5m", "") }()
			}
			eventually(t, "both wait, and their shard is heard", func() bool {
				return noted() == 1 && a.engine.awaited.Load() == 2 && a.engine.hears("mail", 0)
			})
			c.end(c.queue, id)
			for range 2 {
				if r := <-end; r.status != 200 || !strings.Contains(r.raw, c.want) {
					t.Errorf("%s: got %d %s, want %s", c.name, r.status, r.raw, c.want)
				}
			}
			if n := noted(); n != 0 {
				t.Errorf("%s: %d notes are left", c.name, n)
			}
		}
	}
}

func TestAWaitForAnEndIsOverWithItsNamespace(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	noted := awaited(t, redis)
	p := awaitingProcess(t, redis.URL())
	id := p.do("POST", "/v1/mail/q", "x").IDs[0]
	end := make(chan *reply, 1)
	go func() { end <- p.do("GET", "/v1/mail/q/jobs/"+id+"?wait=5m", "") }()
	eventually(t, "it waits", func() bool { return noted() == 1 && p.engine.hears("mail", 0) })
	if err := p.store.SetNamespaces(t.Context(), map[string]job.Policy{}); err != nil {
		t.Fatal(err)
	}
	p.engine.Refresh()
	if r := <-end; r.status != 404 || r.Error != "no_such_namespace" {
		t.Errorf("got %d %s", r.status, r.raw)
	}
}

// A client that goes away takes its wait with it at once.
func TestAWaitForAnEndIsOverWithItsClient(t *testing.T) {
	t.Parallel()
	p := awaitingProcess(t, redistest.Start(t).URL())
	id := p.do("POST", "/v1/mail/q", "x").IDs[0]
	c := p.hold("GET /v1/mail/q/jobs/" + id + "?wait=5m HTTP/1.1\r\nHost: x\r\n\r\n")
	eventually(t, "it waits", func() bool { return p.engine.hears("mail", 0) })
	_ = c.Close()
	eventually(t, "nobody waits", func() bool { return p.engine.awaited.Load() == 0 })
}

// commands are those that Redis ran, beside those that ask it.
func commands(stats string) map[string]string {
	ran := map[string]string{}
	for line := range strings.Lines(stats) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if n, found := strings.CutPrefix(strings.Split(rest, ",")[0], "calls="); found && name != "info" && !strings.HasPrefix(name, "config") {
			ran[name] = n
		}
	}
	return ran
}

// While no job ends, a hundred waits ask Redis for nothing.
func TestWaitsForEndsCostRedisNothingMeanwhile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	t.Cleanup(func() { _ = client.Close() })
	p := awaitingProcess(t, server.URL())
	const waits = 100
	ids := p.do("POST", "/v1/mail/q", strings.Repeat("1\n", waits), asNDJSON).IDs
	// A claim that waits has a connection that hears; a ping of it says that 2 s are over.
	go func() {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+p.addr+"/v1/mail/none/claim?wait=10m", nil)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	noted := awaited(t, server)
	take := func() map[string]string {
		stats, err := client.Info(t.Context(), "commandstats").Result()
		if err == nil {
			err = client.ConfigResetStat(t.Context()).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
		return commands(stats)
	}
	window := func() map[string]string {
		take()
		eventually(t, "two pings have passed", func() bool {
			text, _ := client.Info(t.Context(), "commandstats").Result()
			return strings.Contains(text, "cmdstat_ping:") && !strings.Contains(text, "cmdstat_ping:calls=1,")
		})
		return take()
	}
	window()
	before := window()
	ends := make(chan *reply, waits)
	for _, id := range ids {
		go func() { ends <- p.do("GET", "/v1/mail/q/jobs/"+id+"?wait=5m", "") }()
	}
	eventually(t, "all wait", func() bool { return noted() == waits && p.engine.hears("mail", 0) })
	// They look when the channel is heard, and where it was lost. A wait that asked by itself would ask in each window.
	eventually(t, "a window in which no wait asks", func() bool {
		for name, n := range window() { // what the process does by itself comes at times of its own
			calls, _ := strconv.Atoi(n)
			if others, _ := strconv.Atoi(before[name]); calls-others >= waits/2 {
				t.Logf("%d waits made %d calls of %s, and there were %d without", waits, calls, name, others)
				return false
			}
		}
		return true
	})
	p.do("DELETE", "/v1/mail/q?state=all", "")
	for range waits {
		if r := <-ends; !strings.Contains(r.raw, `"state":"gone"`) {
			t.Errorf("got %d %s", r.status, r.raw)
		}
	}
}

const pollText = "POST /v1/mail/q/claim?wait=10m HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // most of them wait for Redis, or for a time
	os.Exit(m.Run())
}

// eventually waits until another goroutine makes a condition true.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	redistest.Until(t, time.Minute, what, holds)
}

// waiting is how many polls a wake of any of their queues would reach.
func (p *port) waiting() (n int) {
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	for poll := range p.engine.polls {
		if poll.listed && poll.unheard == 0 {
			n++
		}
	}
	return n
}

func (p *port) polls() int {
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	return len(p.engine.polls)
}

func TestWorkersAreBoundedThoughTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	var w workers
	for i := range maxWorkers {
		w.note("shop", &Worker{Name: fmt.Sprint("w", i), SeenMS: 2_000})
	}
	for i := range 3 {
		w.note("shop", &Worker{Name: fmt.Sprint("late", i), SeenMS: 1_000})
	}
	if n := len(w.of["shop"]); n != maxWorkers || w.of["shop"]["late2"] == nil {
		t.Errorf("%d workers, want %d with the last", n, maxWorkers)
	}
}
