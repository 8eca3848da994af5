package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// baseline is what a server holds when nobody asks anything of it.
type baseline struct {
	goroutines  float64
	descriptors int
}

func (s *server) baseline(ctx context.Context, r *setup) (b baseline, err error) {
	// The other way round it would count the connection that asked.
	if b.descriptors, err = s.descriptors(r); err != nil {
		return b, err
	}
	b.goroutines, err = s.metric(ctx, "go_goroutines")
	return b, err
}

// descriptors are those a process has open, but for its connections to Redis,
// a pool that grows with what is going on at the same time.
func (s *server) descriptors(r *setup) (n int, err error) {
	_, port, _ := net.SplitHostPort(r.hazard.redis)
	number, err := strconv.Atoi(port)
	if err != nil {
		return 0, err
	}
	// Fields of a line: number, local, remote (address:port in hexadecimal), …, inode.
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", s.PID))
	if err != nil {
		return 0, err
	}
	pool := map[string]bool{}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 9 && strings.HasSuffix(f[2], fmt.Sprintf(":%04X", number)) {
			pool["socket:["+f[9]+"]"] = true
		}
	}
	dir := fmt.Sprintf("/proc/%d/fd", s.PID)
	open, err := os.ReadDir(dir)
	for _, e := range open {
		// One that has just been closed has no link any more.
		if to, gone := os.Readlink(filepath.Join(dir, e.Name())); gone == nil && !pool[to] {
			n++
		}
	}
	return n, err
}

// warm has a server open what it keeps: connections to its store, workers.
func (r *setup) warm(ctx context.Context) (err error) {
	for i := range 32 {
		path := fmt.Sprintf("/v1/default/warm-%d", i)
		if i == 0 {
			path = "/v1/filed/p" // its file opens with the first batch
		}
		s := exchange(r.plain.data, stall(post(path, "", "x")), []string{ok})
		if s.problem != "" {
			return errors.New("warm up: " + s.problem)
		}
		r.heard(r.plain, s)
	}
	err = until(ctx, 10*time.Second, func() error { return r.written(1) })
	if err == nil {
		r.before, err = r.plain.baseline(ctx, r)
	}
	return err
}

// A check is something that has to hold once the corpus is through.
type check struct {
	name string
	run  func(ctx context.Context, r *setup) error
}

var checks = []check{
	{"the servers are alive and ready", alive},
	{"no handler, sink or worker panicked", noPanics},
	{"the ledger holds what was acknowledged, to the entry", exactLedger},
	{"the ledger of queues holds what was acknowledged, to the job", exactJobs},
	{"nothing smuggled was stored", nothingSmuggled},
	{"goroutines and descriptors are back", backToBaseline},
	{"nobody was led to a forbidden address or file", noTrespass},
	{"no partition is a label of a metric", noPartitionLabel},
	{"the logs hold no control character", cleanLogs},
	{"the sink's file holds one entry a line", cleanFile},
	{"no secret is in an answer, a metric, a profile, a setting or a log", noLeak},
}

func alive(ctx context.Context, r *setup) error {
	for _, s := range r.servers() {
		if _, err := s.get(ctx, "/readyz"); err != nil {
			return err
		}
		if s == r.sealed {
			continue // it answers nobody without a certificate
		}
		seen := exchange(s.data, stall(probe), []string{"200 status=ok"})
		if seen.problem != "" || seen.connEnd != kept {
			return errors.New(seen.String())
		}
	}
	return nil
}

func noPanics(ctx context.Context, r *setup) error {
	for _, s := range r.servers() {
		for _, name := range []string{"spillway_ingest_panics_total", "spillway_drain_panics_total"} {
			n, err := s.metric(ctx, name)
			if err != nil || n != 0 {
				return fmt.Errorf("%s is %v (%v)", name, n, err)
			}
		}
		text, err := os.ReadFile(s.Log)
		if err != nil || bytes.Contains(text, []byte("panic")) || bytes.Contains(text, []byte("goroutine ")) {
			return fmt.Errorf("%s speaks of a panic (%v)", s.Log, err)
		}
	}
	return nil
}

// exactLedger: acknowledged = accepted + repeated under a key.
func exactLedger(ctx context.Context, r *setup) error {
	for _, of := range r.servers() {
		if of == r.queues {
			continue // exactJobs
		}
		var l, repeated float64
		err := until(ctx, 5*time.Second, func() error { // who hung up may have left a flush
			total, err := of.ledger(ctx, false)
			if err != nil {
				return err
			}
			l = float64(total.Accepted)
			if repeated, err = of.metric(ctx, "spillway_ingest_entries_total", `result="repeated"`); err != nil {
				return err
			}
			if l+repeated != float64(of.acked) {
				return fmt.Errorf("acknowledged %d, accepted %v, repeated %v", of.acked, l, repeated)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if _, err := of.ledger(ctx, true); err != nil {
			return err
		}
		if of.acked == 0 {
			return errors.New("a server acknowledged nothing, which proves nothing")
		}
	}
	return nil
}

// exactJobs: acknowledged = published, and all of it is somewhere.
func exactJobs(ctx context.Context, r *setup) error {
	var published int64
	for _, ns := range r.queues.namespaces {
		text, err := r.queues.get(ctx, "/api/v1/namespaces/"+ns+"?audit=1")
		if err != nil {
			return err
		}
		var a struct {
			Ledger   struct{ Published, Lost int64 }
			Residual *int64
		}
		if err := json.Unmarshal(text, &a); err != nil || a.Residual == nil || *a.Residual != 0 || a.Ledger.Lost != 0 {
			return fmt.Errorf("the ledger of %s: %s (%v)", ns, text, err)
		}
		published += a.Ledger.Published
	}
	if published != r.queues.acked || published == 0 {
		return fmt.Errorf("acknowledged %d, published %d", r.queues.acked, published)
	}
	return nil
}

func nothingSmuggled(_ context.Context, r *setup) error {
	want := "404 no_such_partition"
	s := exchange(r.plain.data, stall(request("GET /v1/default/smuggled", "", "")), []string{want})
	if len(s.answers) != 1 || s.answers[0] != want {
		return errors.New(s.String())
	}
	return nil
}

// backToBaseline: fasthttp keeps an idle worker for ten seconds.
func backToBaseline(ctx context.Context, r *setup) error {
	return until(ctx, 30*time.Second, func() error {
		now, err := r.plain.baseline(ctx, r)
		if err != nil {
			return err
		}
		if now.goroutines > r.before.goroutines || now.descriptors > r.before.descriptors {
			return fmt.Errorf("before %+v, now %+v", r.before, now)
		}
		return nil
	})
}

func noTrespass(_ context.Context, r *setup) error {
	if n := r.hazard.trespass.Load(); n != 0 {
		return fmt.Errorf("%d connections to it", n)
	}
	for _, path := range outside(r) {
		if _, err := os.Stat(path); err == nil {
			return fmt.Errorf("%s was written", path)
		}
	}
	return nil
}

func noPartitionLabel(ctx context.Context, r *setup) error {
	for _, s := range r.servers() {
		text, err := s.get(ctx, "/metrics")
		if err != nil {
			return err
		}
		for _, word := range []string{"partition=", "many-1", "warm-1", "smuggled", "Pair"} {
			if bytes.Contains(text, []byte(word)) {
				return fmt.Errorf("/metrics holds %q", word)
			}
		}
	}
	return nil
}

func cleanLogs(_ context.Context, r *setup) error {
	for _, s := range r.servers() {
		text, err := os.ReadFile(s.Log)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(text) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			if at := bytes.IndexFunc(line, func(c rune) bool { return c < ' ' && (c != '\t' || s != r.impatient) || c == 0x7f }); at >= 0 {
				return fmt.Errorf("%s has byte %#x in %q", filepath.Base(s.Log), line[at], line)
			}
			if s != r.impatient && !json.Valid(line) { // its log is for people
				return fmt.Errorf("%s has a line that is no JSON: %q", filepath.Base(s.Log), line)
			}
		}
		if len(text) == 0 {
			return fmt.Errorf("%s is empty, which proves nothing", s.Log)
		}
	}
	return nil
}

// cleanFile: five rows sent an entry to the namespace filed, and the warm-up one.
func cleanFile(ctx context.Context, r *setup) error {
	return until(ctx, 10*time.Second, func() error { return r.written(6) })
}

// written reads the file of the namespace filed, which has to hold n entries.
func (r *setup) written(n int) error {
	text, err := os.ReadFile(filepath.Join(r.dir, "out.ndjson"))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		var l struct{ Namespace, Partition string }
		if err := json.Unmarshal(line, &l); err != nil || l.Namespace != "filed" || l.Partition != "p" {
			return fmt.Errorf("line %q: %v", line, err)
		}
		if bytes.ContainsFunc(bytes.TrimSuffix(line, []byte("\n")), func(c rune) bool { return c < ' ' }) {
			return fmt.Errorf("control characters in line %q", line)
		}
		n--
	}
	if n != 0 {
		return fmt.Errorf("%d lines are missing", n)
	}
	return nil
}

func noLeak(ctx context.Context, r *setup) error {
	if !r.hazard.sawUser.Load() {
		return errors.New("the webhook's password was never used, which proves nothing")
	}
	for _, text := range r.said {
		if s := leaked(text); s != "" {
			return fmt.Errorf("%s is in an answer: %s", s, text)
		}
	}
	for _, s := range r.servers() {
		for _, path := range []string{
			"/metrics", "/readyz", "/api/v1/namespaces", "/api/v1/namespaces/" + s.namespaces[0], "/debug/pprof/", "/debug/pprof/goroutine?debug=2",
			"/debug/pprof/heap?debug=1",
			"/debug/pprof/allocs?debug=1", "/debug/pprof/block?debug=1", "/debug/pprof/mutex?debug=1", "/debug/pprof/threadcreate?debug=1",
			"/debug/pprof/symbol", "/debug/pprof/trace?seconds=0.1",
		} {
			text, err := s.get(ctx, path)
			if err != nil {
				return err
			}
			if l := leaked(string(text)); l != "" {
				return fmt.Errorf("%s is in %s", l, path)
			}
		}
		log, err := os.ReadFile(s.Log)
		if err != nil {
			return err
		}
		if l := leaked(string(log)); l != "" {
			at := strings.Index(string(log), l)
			return fmt.Errorf("%s is in %s: %.300s", l, filepath.Base(s.Log), log[max(0, at-200):])
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.PID))
		if err != nil || leaked(string(line)) != "" {
			return fmt.Errorf("the command line holds a secret (%v)", err)
		}
		for _, command := range []string{"print", "check"} {
			file := strings.TrimSuffix(s.Log, ".log") + ".yaml"
			text, err := exec.CommandContext(ctx, r.bin, "config", command, "--config", file).CombinedOutput()
			if l := leaked(string(text)); l != "" || err != nil {
				return fmt.Errorf("config %s says %s: %v", command, l, err)
			}
		}
	}
	return nil
}

// until asks again and again until holds returns nil, or gives up with its error.
func until(ctx context.Context, most time.Duration, holds func() error) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
