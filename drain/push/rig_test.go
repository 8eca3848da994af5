package push

import (
	"context"
	"errors"
	"flag"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition/job"
)

// A rig is a pusher of the namespace mail over a fake store and a fake sink.
type rig struct {
	t     testing.TB
	store *fakeJobs
	sink  *fakeSink
	cfg   Config
	rule  Rule
	rules []Rule // before rule
	more  map[string]Sink
	p     *Pusher
}

// newRig is called inside a bubble. Its rule matches every queue.
func newRig(t testing.TB, policy ...job.Policy) *rig {
	t.Helper()
	r := &rig{t: t, cfg: DefaultConfig(), rule: DefaultRule(), more: map[string]Sink{}}
	used := append(policy, job.DefaultPolicy())[0]
	used.MaxKeys = job.DefaultPolicy().MaxKeys
	r.store = newFakeJobs(t, used)
	r.rule.Match, r.rule.Sink = "*", "crm"
	r.sink = &fakeSink{}
	return r
}

func (r *rig) start() { r.t.Helper(); r.p = r.pusher(r.sink) }

// pusher starts one more pusher.
func (r *rig) pusher(s sink.Sink) *Pusher {
	r.t.Helper()
	sinks := map[string]Sink{"crm": {Sink: s, Label: "https://crm"}}
	for name, s := range r.more {
		sinks[name] = s
	}
	target := Target{Namespace: "mail", Rules: append(r.rules[:len(r.rules):len(r.rules)], r.rule), Sinks: sinks}
	p, err := New(r.cfg, r.store, []Target{target}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		r.t.Fatal(err)
	}
	if err := p.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *rig) stop() {
	r.t.Helper()
	r.stopOne(r.p)
	if len(r.store.broken) > 0 {
		r.t.Errorf("%q", r.store.broken)
	}
}

func (r *rig) stopOne(p *Pusher) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		r.t.Errorf("stop: %v", err)
	}
	for _, t := range p.targets {
		t.mu.Lock()
		if slots := t.guard.AtOnce(); t.running != 0 || t.unsettled != 0 || t.slots.Available() != slots {
			r.t.Errorf("left behind: %d running, %d unsettled, %d of %d slots", t.running, t.unsettled, t.slots.Available(), slots)
		}
		if len(t.waits) > 0 || t.timer.Stop() {
			r.t.Errorf("a timer for %d waits outlives Stop", len(t.waits))
		}
		for _, q := range t.queues {
			if q.running != 0 {
				r.t.Errorf("queue %s: %d running", q.name, q.running)
			}
		}
		t.mu.Unlock()
	}
}

func (r *rig) outcome(outcome string) int {
	return int(testutil.ToFloat64(r.p.targets[0].metrics.jobs.WithLabelValues(outcome)))
}

func (r *rig) wantOutcomes(want map[string]int) {
	r.t.Helper()
	for _, o := range outcomes {
		if got := r.outcome(o); got != want[o] {
			r.t.Errorf("%s: got %d, want %d", o, got, want[o])
		}
	}
}

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // most of them wait for Redis, or for a time
	goleak.VerifyTestMain(m)
}

// bubble runs f in a bubble of its own, beside other tests.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

var errDown = errors.New("target is down")

// hang blocks until ctx ends.
func hang(ctx context.Context, _ []*sink.Batch) error {
	<-ctx.Done()
	return ctx.Err()
}

// fakeSink records every Write, and does what its funcs say.
type fakeSink struct {
	open  func(ctx context.Context) error
	write func(ctx context.Context, batches []*sink.Batch) error

	mu        sync.Mutex
	opens     int
	closes    int
	running   int
	maxWrites int // at once
	writes    []written
}

// written is one batch as a Write saw it.
type written struct {
	partition string
	seqs      []int64
	at        time.Time
}

func (s *fakeSink) Caps() sink.Caps { return sink.Caps{} }

func (s *fakeSink) Open(ctx context.Context) error {
	s.mu.Lock()
	s.opens++
	s.mu.Unlock()
	if s.open != nil {
		return s.open(ctx)
	}
	return nil
}

func (s *fakeSink) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closes++; s.running > 0 {
		panic("closed under a Write")
	}
	return nil
}

func (s *fakeSink) Write(ctx context.Context, batches []*sink.Batch) error {
	s.mu.Lock()
	s.running++
	s.maxWrites = max(s.maxWrites, s.running)
	for _, b := range batches {
		w := written{partition: b.Partition, at: time.Now()}
		for _, e := range b.Entries {
			w.seqs = append(w.seqs, e.Seq)
		}
		s.writes = append(s.writes, w)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running--
	}()
	if s.write != nil {
		return s.write(ctx, batches)
	}
	return nil
}

func (s *fakeSink) state() (opens, running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opens, s.running
}

func (s *fakeSink) seen() []written {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

// of is what the sink saw of one queue.
func (s *fakeSink) of(queue string) (list []written) {
	for _, w := range s.seen() {
		if w.partition == queue {
			list = append(list, w)
		}
	}
	return list
}
