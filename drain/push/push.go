// Package push writes the jobs of queues to sinks. It shares the guard of a sink with
// package drain, and knows nothing of buffers. DESIGN.md holds its invariants.
package push

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// Store is what a Pusher needs of *job.Store.
type Store interface {
	Namespace(name string) *job.Namespace
	NewLane() *job.Lane
	Run(ctx context.Context, lane *job.Lane, batch *job.Batch)
	Revert(ctx context.Context, lane *job.Lane) error
	Queues(ctx context.Context, ns *job.Namespace) ([]string, error)
	Listen(on func(job.WakeEvent)) job.Listener
}

// A Pusher writes the jobs of queues to sinks, from Start to Stop. Any number of
// pushers, in any number of processes, may push the same queues.
//
//	queue has jobs ─▶ source due ─▶ plan: slot, turn ─▶ one call a shard ─▶ Write ─▶ ack, nack, bury
//	  ▲ wakes, list                                              ▲ claims and settlements │
//	  └──────────────────────────────────────────────────────────┴────────────────────────┘
//
// It claims a job only when a Write has a free slot for it, so no lease runs while a job
// waits in memory. The sink's answer decides: accepted jobs are acked, rejected ones become dead
// letters, all others are given back with a back-off.
type Pusher struct {
	cfg     Config
	store   Store
	wakes   job.Listener
	log     *zap.Logger
	outage  partition.OutageLog
	spaces  []*namespace
	targets []*target

	life    *guard.Life
	running sync.WaitGroup // everything but the Writes and calls, which end by themselves
}

// New makes a Pusher, which must be stopped even if it never starts. Errors are *partition.FieldError, those of
// Target.Validate, a namespace given twice and metrics that are registered already.
func New(cfg Config, store Store, targets []Target,
	reg prometheus.Registerer, log *zap.Logger) (*Pusher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, t := range targets {
		if err := t.Validate(); err != nil {
			return nil, err
		}
		if seen[t.Namespace] {
			return nil, fmt.Errorf("namespace %s is pushed twice", t.Namespace)
		}
		seen[t.Namespace] = true
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, err
	}
	p := &Pusher{cfg: cfg, store: store, log: log, life: guard.NewLife("push")}
	p.outage.Log, p.outage.Level = log, zap.WarnLevel
	p.outage.Began, p.outage.Ended = "store failing, push paused", "store serves push again"
	p.wakes = store.Listen(p.heard)
	for _, t := range targets {
		n := newNamespace(p, t, m)
		p.spaces = append(p.spaces, n)
		p.targets = append(p.targets, n.targets...)
	}
	return p, nil
}

// Start begins to push and returns at once: the store may be away and a sink closed, so
// ctx bounds nothing. A second Start, and one after Stop, are errors and change nothing.
func (p *Pusher) Start(context.Context) error {
	return p.life.Begin(func() error {
		if err := p.wakes.Start(p.life.Claiming); err != nil {
			return err
		}
		for _, t := range p.targets {
			p.running.Go(func() { t.guard.Keep(p.life.Claiming) })
			p.running.Go(func() { t.follow(p.life.Claiming) })
		}
		for _, n := range p.spaces {
			p.running.Go(func() { n.follow(p.life.Claiming) })
		}
		return nil
	}, func() {
		<-p.life.Claiming.Done()
		var targets sync.WaitGroup
		targets.Go(func() { // a silent server holds a connection for seconds; the sinks are closed meanwhile
			ctx, cancel := context.WithTimeout(context.Background(), guard.StopGrace/2)
			defer cancel()
			_ = p.wakes.Stop(ctx)
		})
		p.running.Wait()
		for _, t := range p.targets {
			targets.Go(t.finish)
		}
		targets.Wait()
	})
}

// Stop ends the claims, lets the running Writes finish, gives back what was claimed and not
// written, uncounted, and closes the sinks: see guard.Life.
func (p *Pusher) Stop(ctx context.Context) error {
	return p.life.End(ctx, func() {}, p.closed, p.stuck)
}

// Ended closes when nothing is pushed to a sink of a namespace any more; nil: this pusher
// has no such sink.
func (p *Pusher) Ended(namespace, sink string) <-chan struct{} {
	for _, t := range p.targets {
		if t.namespace == namespace && t.sink == sink {
			return t.over
		}
	}
	return nil
}

// closed is what the sinks said when they were closed.
func (p *Pusher) closed() error {
	var errs []error
	for _, t := range p.targets {
		errs = append(errs, t.closed)
	}
	return errors.Join(errs...)
}

func (p *Pusher) stuck() string {
	var names []string
	for _, t := range p.targets {
		select {
		case <-t.over:
		default:
			names = append(names, t.namespace+" "+t.sink)
		}
	}
	return strings.Join(names, ", ")
}

// Refresh has the queues asked again that have another limit now: what the last one held back may
// pass. Call it when namespaces have changed.
func (p *Pusher) Refresh() {
	for _, t := range p.targets {
		t.refresh()
	}
}

// heard is called for every event of the wakes. An event without a namespace, or without a
// queue, is about all of them.
func (p *Pusher) heard(e job.WakeEvent) {
	for _, t := range p.targets {
		if e.Namespace == "" || e.Namespace == t.namespace {
			t.heard(e)
		}
	}
}

// A namespace finds out which queues of a namespace there are, and tells the targets.
type namespace struct {
	p       *Pusher
	name    string
	rules   []Rule
	targets []*target
	bySink  map[string]*target
	wild    bool // some rules match queues that they do not name
}

// forgetAfter is how long a queue without jobs is kept: its wakes cost a subscription.
const forgetAfter = time.Minute

func newNamespace(p *Pusher, t Target, m *metrics) *namespace {
	n := &namespace{p: p, name: t.Namespace, rules: t.Rules, bySink: map[string]*target{}}
	for i := range t.Rules {
		name := t.Rules[i].Sink
		n.wild = n.wild || t.Rules[i].Match.Wild()
		if n.bySink[name] == nil {
			n.bySink[name] = newTarget(p, t.Namespace, name, t.Sinks[name], m.of(t.Namespace, name))
			n.targets = append(n.targets, n.bySink[name])
		}
	}
	return n
}

// rule is the one that matches a queue; nil: the queue is not pushed.
func (n *namespace) rule(queue string) *Rule {
	for i := range n.rules {
		if n.rules[i].Match.Matches(queue) {
			return &n.rules[i]
		}
	}
	return nil
}

// follow keeps the targets' queues those that are there, until ctx ends. Where every rule
// names its queue, no call to the store is needed for that.
func (n *namespace) follow(ctx context.Context) {
	failing := false
	for {
		pause := n.p.cfg.Poll
		if ns := n.p.store.Namespace(n.name); ns != nil {
			names, err := n.queues(ctx, ns)
			if (err != nil) != failing && ctx.Err() == nil {
				if failing = err != nil; failing {
					n.p.outage.Begin(zap.String("namespace", n.name), zap.Error(err))
				} else {
					n.p.outage.End()
				}
			}
			for _, name := range names {
				if r := n.rule(name); r != nil {
					n.bySink[r.Sink].list(ns, name, r)
				}
			}
			for _, t := range n.targets {
				t.poll(ns, err == nil)
			}
			pause = max(pause, time.Duration(len(names))*100*time.Microsecond)
		}
		if !guard.Sleep(ctx, pause*3/4+time.Duration(rand.Int64N(int64(pause/2)+1))) {
			break
		}
	}
	if failing {
		n.p.outage.End()
	}
}

// queues are those that have jobs, as far as a rule may match them, and those that rules
// name.
func (n *namespace) queues(ctx context.Context, ns *job.Namespace) (names []string, err error) {
	if n.wild {
		names, err = n.p.store.Queues(ctx, ns)
	}
	for i := range n.rules {
		if !n.rules[i].Match.Wild() {
			names = append(names, string(n.rules[i].Match))
		}
	}
	return names, err
}
