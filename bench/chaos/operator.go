package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-io/spillway/bench/rig"
)

// Operators act on the jobs of one queue: of those the checks of attempts say nothing.
const operatedQueue = "ship"

// verbs are what they do there, the body of each with the number of jobs they agree to.
var verbs = []struct{ path, body string }{
	{"dead/respawn", `{"confirm":1000000}`},
	{"dead/delete", `{"confirm":1000000}`},
	{"purge", `{"confirm":1000000,"state":"all"}`},
}

// operate pauses deliveries for a while, and meanwhile acts on jobs. Servers and Redis may
// fail at the same time, so an act may be rejected, or done without an answer; that the
// namespace is resumed is certain.
func operate(ctx context.Context, r *setup, f planned) error {
	const buffer = "/api/v1/namespaces/" + bufferNamespace
	verb := verbs[int(f.at/time.Millisecond)%len(verbs)]
	err := errors.Join(r.act(buffer+"/pause", "{}"), r.act("/api/v1/namespaces/"+queueNamespace+"/queues/"+operatedQueue+"/"+verb.path, verb.body))
	rig.Sleep(ctx, f.lasts)
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
