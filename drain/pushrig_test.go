package drain

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition/job"
)

// A pushRig is a pusher of the namespace mail over a fake store and a fake sink.
type pushRig struct {
	t     testing.TB
	store *fakeJobs
	sink  *fakeSink
	cfg   PushConfig
	rule  PushRule
	rules []PushRule // before rule
	more  map[string]PushSink
	p     *Pusher
}

// newPushRig is called inside a bubble. Its rule matches every queue.
func newPushRig(t testing.TB, policy ...job.Policy) *pushRig {
	t.Helper()
	r := &pushRig{t: t, cfg: DefaultPushConfig(), rule: DefaultPushRule(), more: map[string]PushSink{}}
	used := append(policy, job.DefaultPolicy())[0]
	used.MaxKeys = job.DefaultPolicy().MaxKeys
	r.store = newFakeJobs(t, used)
	r.rule.Match, r.rule.Sink = "*", "crm"
	r.sink = &fakeSink{now: func() int64 { return 0 }}
	return r
}

func (r *pushRig) start() { r.t.Helper(); r.p = r.pusher(r.sink) }

// pusher starts one more pusher.
func (r *pushRig) pusher(s sink.Sink) *Pusher {
	r.t.Helper()
	sinks := map[string]PushSink{"crm": {Sink: s, Label: "https://crm"}}
	for name, s := range r.more {
		sinks[name] = s
	}
	target := PushTarget{Namespace: "mail", Rules: append(r.rules[:len(r.rules):len(r.rules)], r.rule), Sinks: sinks}
	p, err := NewPusher(r.cfg, r.store, r.store.newWakes, []PushTarget{target}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		r.t.Fatal(err)
	}
	if err := p.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *pushRig) stop() {
	r.t.Helper()
	r.stopOne(r.p)
	if len(r.store.broken) > 0 {
		r.t.Errorf("%q", r.store.broken)
	}
}

func (r *pushRig) stopOne(p *Pusher) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		r.t.Errorf("stop: %v", err)
	}
	for _, t := range p.targets {
		t.mu.Lock()
		if slots := t.guard.atOnce(); t.running != 0 || t.unsettled != 0 || t.slots.available() != slots {
			r.t.Errorf("left behind: %d running, %d unsettled, %d of %d slots", t.running, t.unsettled, t.slots.available(), slots)
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

func (r *pushRig) outcome(outcome string) int {
	return int(testutil.ToFloat64(r.p.targets[0].metrics.jobs.WithLabelValues(outcome)))
}

func (r *pushRig) wantOutcomes(want map[string]int) {
	r.t.Helper()
	for _, o := range pushOutcomes {
		if got := r.outcome(o); got != want[o] {
			r.t.Errorf("%s: got %d, want %d", o, got, want[o])
		}
	}
}
