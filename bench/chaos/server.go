package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/chaos/check"
	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
)

// startTimeout is how long a server or a Redis may take to be ready. With faults
// about, that is longer than it sounds.
const startTimeout = 30 * time.Second

// A server is one `spillway serve`, instance after instance on the same ports.
type server struct {
	name, dir, bin string
	data, admin    string // host:port
	flags          []string
	masters        int // of the store

	mu        sync.Mutex
	instances []*instance
}

type instance struct {
	*proc.Process
	check check.Process
}

// start starts an instance and waits for its ports, not for its store: that may be
// what is broken.
func (s *server) start(ctx context.Context) error {
	s.mu.Lock()
	n := len(s.instances)
	s.mu.Unlock()
	p, err := proc.Start(s.dir, fmt.Sprintf("%s.%d", s.name, n), s.bin, append([]string{"serve",
		"--listen", s.data, "--admin-listen", s.admin, "--log-format", "json"}, s.flags...)...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	l := &instance{p, check.Process{Name: s.name, Masters: float64(s.masters), Birth: map[string]float64{}}}
	s.mu.Lock()
	s.instances = append(s.instances, l)
	s.mu.Unlock()
	return p.Await(ctx, s.name, func(ctx context.Context) error {
		figures, err := s.scrape(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		l.check.Birth = figures
		return err
	})
}

// process is the instance it has now.
func (s *server) process() *proc.Process { return s.instance().Process }

func (s *server) instance() *instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.instances[len(s.instances)-1]
}

// look keeps the figures of the instance it has now.
func (s *server) look(ctx context.Context) error {
	l := s.instance()
	figures, err := s.scrape(ctx)
	if err != nil || l != s.instance() {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.check.Last = figures
	return nil
}

// settle waits until an idle server has given back what it can, or until the
// patience for that is over, and keeps its last figures.
func (s *server) settle(ctx, patience context.Context) error {
	l := s.instance()
	l.check.Alive = true
	for {
		err := s.collect(ctx)
		l.check.Garbage = l.check.Garbage || err == nil
		if err == nil && len(l.check.Leaks()) == 0 {
			return nil
		}
		if !rig.Sleep(patience, 200*time.Millisecond) {
			if l.check.Garbage {
				return nil // the checks tell
			}
			return err
		}
	}
}

// collect has the server collect its garbage, and keeps its figures after it.
func (s *server) collect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// A heap profile with gc=1 collects first.
	if _, err := bench.Get(ctx, "http://"+s.admin+"/debug/pprof/heap?gc=1"); err != nil {
		return fmt.Errorf("%s: collect garbage: %w", s.name, err)
	}
	if err := s.look(ctx); err != nil {
		return fmt.Errorf("%s: read metrics: %w", s.name, err)
	}
	return nil
}

func (s *server) history() (all []check.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.instances {
		all = append(all, l.check)
	}
	return all
}

// scrape reads the metrics that the checks want.
func (s *server) scrape(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	text, err := bench.Get(ctx, "http://"+s.admin+"/metrics")
	if err != nil {
		return nil, err
	}
	return rig.Metrics(text)
}
