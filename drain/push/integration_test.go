package push

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/job"
)

// process is one process's store of jobs and pusher on a shared Redis.
type process struct {
	store    *job.Store
	ns       *job.Namespace
	promoter *job.Promoter
	p        *Pusher
	metrics  *prometheus.Registry
}

// startPush starts a process that pushes all queues of the namespace mail to a sink.
func startPush(t testing.TB, url string, policy job.Policy, rule Rule, s sink.Sink) *process {
	t.Helper()
	log := zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel))
	b := backendtest.Open(t, backend.Config{URL: url})
	store, err := job.Open(job.Config{Prefix: "sw", Volatile: true, Namespaces: map[string]job.Policy{"mail": policy}}, b, prometheus.NewRegistry(), log)
	if err != nil {
		t.Fatal(err)
	}
	x := &process{store: store, ns: store.Namespace("mail"), promoter: job.NewPromoter(store), metrics: prometheus.NewRegistry()}
	until(t, 20*time.Second, "the store can be used", func() bool { _, err := store.Check(t.Context()); return err == nil })
	if err := x.promoter.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	target := Target{Namespace: "mail", Rules: []Rule{rule}, Sinks: map[string]Sink{"crm": {Sink: s, Label: "fake:"}}}
	if x.p, err = New(DefaultConfig(), store, []Target{target}, x.metrics, log); err != nil {
		t.Fatal(err)
	}
	if err := x.p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *process) stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := errors.Join(x.p.Stop(ctx), x.promoter.Stop(ctx)); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// publish stores n jobs, in turn on the queue's shards.
func (x *process) publish(t testing.TB, queue string, n, tries int) {
	t.Helper()
	lane := x.store.NewLane()
	shards := x.ns.Shards(queue)
	for k, shard := range shards {
		p := &job.Publish{Namespace: x.ns, Queue: queue, Shard: shard, Tries: tries}
		for i := k; i < n; i += len(shards) {
			p.Messages = append(p.Messages, job.Message{Payload: fmt.Appendf(nil, `{"i":%d}`, i), Attributes: []byte(`{"kind":"a"}`)})
		}
		x.store.Run(t.Context(), lane, &job.Batch{Publishes: []*job.Publish{p}})
		if p.Err != nil {
			t.Fatal(p.Err)
		}
	}
}

func (x *process) ledger(t testing.TB) job.Ledger {
	t.Helper()
	l, err := x.store.Ledger(t.Context(), x.ns)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// until waits for a condition.
func until(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	redistest.Until(t, limit, what, ok)
}

// deliveries counts what sinks see of each job.
type deliveries struct {
	mu      sync.Mutex
	seen    map[string]int
	running map[string]bool
	twice   int // jobs that were in two Writes at once
	wrong   int // attempts that are not one more than the one before
}

func (d *deliveries) sink(outcome func(n int) error) *fakeSink {
	return &fakeSink{write: func(ctx context.Context, batches []*sink.Batch) error {
		b := batches[0]
		d.mu.Lock()
		for i, e := range b.Entries {
			id := string(e.ID)
			if d.running[id] {
				d.twice++
			}
			d.running[id] = true
			if d.seen[id]++; b.Jobs[i].Attempt != d.seen[id] {
				d.wrong++
			}
		}
		n := d.seen[string(b.Entries[0].ID)]
		d.mu.Unlock()
		defer func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, e := range b.Entries {
				delete(d.running, string(e.ID))
			}
		}()
		return outcome(n)
	}}
}

// On a real Redis, two pushers side by side and a sink that fails in every way it may: no
// job is delivered twice at once, or more often than it may be, and the ledger is exact.
func TestRedisTwoPushersAndAFailingSink(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]int{"one by one": 1, "batches": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			policy := job.DefaultPolicy()
			policy.Shards, policy.Spread = 3, map[string]int{"bulk": 3}
			rule := DefaultRule()
			rule.Match, rule.Sink, rule.Batch, rule.BackoffBase, rule.BackoffMax = "*", "crm", batch, time.Millisecond, 50*time.Millisecond
			d := &deliveries{seen: map[string]int{}, running: map[string]bool{}}
			outcome := func(n int) error {
				switch roll := rand.IntN(20); {
				case roll == 0:
					return sink.Throttle(errDown, 10*time.Millisecond)
				case roll == 1 && batch == 1:
					return sink.Permanent(errDown)
				case roll < 5:
					return errDown
				}
				return nil
			}
			url := "redis://" + server.Addr
			first, second := startPush(t, url, policy, rule, d.sink(outcome)), startPush(t, url, policy, rule, d.sink(outcome))
			const queues, jobs = 20, 100
			first.publish(t, "bulk", 1000, 4)
			for i := range queues {
				first.publish(t, fmt.Sprintf("q%02d", i), jobs, 4)
			}
			until(t, time.Minute, "every job ends", func() bool {
				l := first.ledger(t)
				return l.Ready+l.Delayed+l.Leased == 0
			})
			first.stop(t)
			second.stop(t)
			l := first.ledger(t)
			const all = 1000 + queues*jobs
			if l.Published != all || l.Acked+l.Dead != all || l.Dead == all || l.Lost+l.Expired+l.Deleted != 0 {
				t.Errorf("ledger %+v", l)
			}
			if d.twice > 0 || d.wrong > 0 || len(d.seen) != all {
				t.Errorf("%d twice at once, %d with a wrong attempt, %d of %d seen", d.twice, d.wrong, len(d.seen), all)
			}
			for id, n := range d.seen {
				if n > 4 {
					t.Errorf("%s: %d deliveries", id, n)
				}
			}
		})
	}
}

// A limit that was changed at run time holds at once: nothing waits for what the one before held back.
func TestRedisPushFollowsALimitThatIsRaised(t *testing.T) {
	t.Parallel()
	hour, second := job.Rule{Match: "*"}, job.Rule{Match: "*"}
	if err := errors.Join(hour.Rate.UnmarshalText([]byte("1/h")), second.Rate.UnmarshalText([]byte("100/s"))); err != nil {
		t.Fatal(err)
	}
	for name, rules := range map[string][2][]job.Rule{
		"rate raised":         {{hour}, {second}},
		"rate removed":        {{hour}, nil},
		"concurrency raised":  {{{Match: "*", Concurrency: 1}}, {{Match: "*", Concurrency: 5}}},
		"concurrency removed": {{{Match: "q", Concurrency: 1}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy, rule := job.DefaultPolicy(), DefaultRule()
			policy.Rules = rules[0]
			rule.Match, rule.Sink = "q", "crm"
			var release sync.WaitGroup // no slot comes back, as that of a deferred job
			release.Add(1)
			s := &fakeSink{write: func(context.Context, []*sink.Batch) error { release.Wait(); return nil }}
			x := startPush(t, "redis://"+redistest.Start(t).Addr, policy, rule, s)
			defer x.stop(t)
			defer release.Done()
			x.publish(t, "q", 5, 3)
			source := func() (held bool) {
				target := x.p.targets[0]
				target.mu.Lock()
				defer target.mu.Unlock()
				for _, src := range target.queues["q"].sources {
					held = src.rate.waits || !src.due && target.queues["q"].running == 1
				}
				return held
			}
			until(t, 30*time.Second, "the limit holds the queue back", func() bool { return len(s.of("q")) == 1 && source() })
			policy.Rules = rules[1]
			if err := x.store.SetNamespaces(t.Context(), map[string]job.Policy{"mail": policy}); err != nil {
				t.Fatal(err)
			}
			x.p.Refresh()
			until(t, 5*time.Second, "as many Writes as the new limit lets pass", func() bool { _, running := s.state(); return running == 5 })
		})
	}
}
