package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/chaos/check"
	"github.com/spillway-io/spillway/bench/rig"
)

// Operators act on the jobs of one queue: of those the checks of attempts say nothing. Another they pause.
const (
	operatedQueue = "ship"
	pausedQueue   = "pay"
)

// limits bound the leases of queues.
var limits = []struct {
	queue string
	most  int64
}{{"pay", 3}, {"mail", 6}}

// limitRules are the limits as a configuration has them.
func limitRules() string {
	var rules []string
	for _, l := range limits {
		rules = append(rules, fmt.Sprintf("{match: %s, concurrency: %d}", l.queue, l.most))
	}
	return "[" + strings.Join(rules, ", ") + "]"
}

// verbs are what they do there, the body of each with the number of jobs they agree to.
var verbs = []struct{ path, body string }{
	{"dead/respawn", `{"confirm":1000000}`},
	{"dead/delete", `{"confirm":1000000}`},
	{"purge", `{"confirm":1000000,"all":true}`},
}

// operate pauses deliveries and a queue for a while, and meanwhile acts on jobs. Servers and Redis may
// fail at the same time, so an act may be rejected, or done without an answer; that both
// are resumed is certain.
func operate(ctx context.Context, r *setup, f planned) error {
	const buffer = "/api/v1/namespaces/" + bufferNamespace
	verb := verbs[int(f.at/time.Millisecond)%len(verbs)]
	const queues = "/api/v1/namespaces/" + queueNamespace + "/queues/"
	const pauses, ofQueue = "/api/v1/namespaces/" + queueNamespace, `{"part":"` + pausedQueue + `"}`
	pause := r.act(pauses+"/pause", ofQueue)
	paused := check.Pause{Partition: pausedQueue, From: time.Now()}
	err := errors.Join(pause, r.act(buffer+"/pause", "{}"), r.act(queues+operatedQueue+"/"+verb.path, verb.body))
	rig.Sleep(ctx, f.lasts)
	if paused.To = time.Now(); pause == nil {
		r.mu.Lock()
		r.queuePauses = append(r.queuePauses, paused)
		r.mu.Unlock()
	}
	for r.act(pauses+"/resume", ofQueue) != nil && rig.Sleep(ctx, 100*time.Millisecond) {
	}
	for r.act(buffer+"/resume", "{}") != nil && rig.Sleep(ctx, 100*time.Millisecond) {
	}
	return err
}

var operator = http.Client{Timeout: 5 * time.Second}

// act asks one admin port after the other until one does it.
func (r *setup) act(path, body string) error {
	for _, name := range r.names {
		resp, err := operator.Post("http://"+r.servers[name].admin+path, "application/json", strings.NewReader(body))
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
	return errors.New(path + ": no server did it")
}

// pausePartition pauses a partition of the workers' buffer for a while.
func pausePartition(ctx context.Context, r *setup, f planned) error {
	end := time.Now().Add(f.lasts)
	n := int(f.at / time.Millisecond)
	paused := check.Pause{Partition: r.plan.partitions[n/8%len(r.plan.partitions)]}
	const buffer = "/api/v1/namespaces/" + bufferNamespace
	part := `{"part":"` + paused.Partition + `"}`
	err := r.act(buffer+"/pause", part)
	if err == nil {
		paused.From = time.Now()
	}
	rig.Sleep(ctx, time.Until(end))
	if err == nil {
		var listed struct {
			Pauses []struct{ Namespace, Partition string }
		}
		for r.ask(ctx, "/api/v1/pauses", &listed) != nil && rig.Sleep(ctx, 100*time.Millisecond) {
		}
		paused.To = time.Now()
		for _, p := range listed.Pauses {
			paused.Listed = paused.Listed || p.Namespace == bufferNamespace && p.Partition == paused.Partition
		}
		r.mu.Lock()
		r.pauses = append(r.pauses, paused)
		r.mu.Unlock()
	}
	for r.act(buffer+"/resume", part) != nil && rig.Sleep(ctx, 100*time.Millisecond) {
	}
	return err
}

// ask reads the answer of one admin port after the other until one gives it.
func (r *setup) ask(ctx context.Context, path string, answer any) (err error) {
	for _, name := range r.names {
		patience, cancel := context.WithTimeout(ctx, operator.Timeout)
		text, wrong := bench.Get(patience, "http://"+r.servers[name].admin+path)
		cancel()
		if err = wrong; err == nil {
			return json.Unmarshal(text, answer)
		}
	}
	return err
}

// reload changes the file and has a server read it.
func reload(_ context.Context, r *setup, f planned) error {
	if _, err := r.writeConfig(2 + int(f.at/time.Millisecond)%3); err != nil {
		return err
	}
	s := r.servers[f.target]
	l := s.instance()
	s.mu.Lock()
	l.check.Afresh = true
	s.mu.Unlock()
	return l.Signal(syscall.SIGHUP)
}
