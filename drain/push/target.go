package push

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

// Rule says which queues of a namespace go to which sink, and how. The figures in the
// comments are the defaults.
type Rule struct {
	// Match names the queues.
	Match job.Pattern
	// Sink is the name of a sink.
	Sink string
	// Writes is how many Writes of one queue run at once in this process; 8. With MinWrites it
	// is the most: as many run as the sink answers within Target, MinWrites at least.
	Writes, MinWrites int
	// Target is the response time that nine of ten Writes have at most; with MinWrites only.
	Target time.Duration
	// DeferFor is how long a job stays leased that the target answered with 202, or as long as
	// the body {"defer":"1h"} says: somebody settles it later by its id. 0: 202 acks as any 2xx
	// does. It needs a Batch of 1.
	DeferFor time.Duration
	// Batch is how many jobs a Write has at most; 1.
	Batch int
	// AcceptAll also pushes PHP jobs that only PHP's own code can run, see job.Job.Bound. Default
	// false: they become dead letters.
	AcceptAll bool
	// BackoffBase and BackoffMax bound the full-jitter wait of a job after it failed:
	// uniform between 0 and min(max, base·2^(attempt−1)); 1s and 10m.
	BackoffBase, BackoffMax time.Duration
}

// DefaultRule returns the defaults of a rule, without Match and Sink.
func DefaultRule() Rule {
	return Rule{Writes: 8, Batch: 1, BackoffBase: time.Second, BackoffMax: 10 * time.Minute}
}

// A job is deferred for so long.
const minDefer, maxDefer = time.Second, 24 * time.Hour

// maxBatch is as many jobs as a sink's batch has entries.
const maxBatch = partition.MaxBatch

// Validate returns a *partition.FieldError for each unusable setting, joined.
func (r Rule) Validate() error {
	var v partition.Validation
	v.Check(r.Match.Valid(), "match", string(r.Match),
		"the name of a queue, in which each * stands for any characters")
	v.Check(r.Sink != "", "sink", r.Sink, "the name of one of sinks")
	v.Check(r.Writes >= 1 && r.Writes <= job.MaxCount, "writes", r.Writes, fmt.Sprintf("1 to %d", job.MaxCount))
	v.Check(r.MinWrites >= 0 && r.MinWrites <= r.Writes, "writes", r.MinWrites, "no more than the most")
	if r.MinWrites > 0 {
		v.Check(r.Target >= time.Millisecond && r.Target <= 10*time.Minute, "target", r.Target,
			"1ms to 10m, for writes is a range")
	} else {
		v.Check(r.Target == 0, "target", r.Target, "none, for writes is not a range such as 1..64")
	}
	v.Check(r.Batch >= 1 && r.Batch <= maxBatch, "batch", r.Batch, fmt.Sprintf("1 to %d", maxBatch))
	v.Check(r.DeferFor == 0 || r.DeferFor >= minDefer && r.DeferFor <= maxDefer, "defer_for",
		r.DeferFor, "1s to 24h")
	v.Check(r.DeferFor == 0 || r.Batch == 1, "defer_for", r.DeferFor, "none, for batch is more than 1")
	v.Check(r.BackoffBase >= time.Millisecond, "backoff", r.BackoffBase, "1ms or more")
	v.Check(r.BackoffMax >= r.BackoffBase && r.BackoffMax <= 24*time.Hour, "backoff", r.BackoffMax,
		"no less than the first, 24h at most")
	return v.Err()
}

// A target pushes the queues of a namespace that go to one sink. There is no loop:
// whatever changes, pump starts the calls that can now be made.
type target struct {
	p          *Pusher
	namespace  string
	sink       string // its name
	label      string
	log        *zap.Logger
	guard      *guard.Guard
	slots      *guard.Slots // for Writes
	metrics    *targetMetrics
	rejections *guard.RejectionLog
	closed     error         // what the sink's Close said
	over       chan struct{} // closes when finish is done

	mu        sync.Mutex
	rules     *job.Namespace // with the rules that refresh saw last
	queues    map[string]*queue
	shards    map[int]*shard
	active    []*shard // with due sources, in the order of their turns
	inRings   int      // sources
	unsettled int      // jobs
	running   int      // calls, Writes, and slots that claims reserved for Writes
	blocked   bool     // the sink lets nothing pass; follow waits for it
	waits     []*wait  // the next to end first; timer is set to it
	timer     *time.Timer
	slotWait  wait             // no slot was free
	unblock   lifecycle.Signal // blocked was set
	ended     lifecycle.Signal // a Write or a call has ended
}

func newTarget(p *Pusher, namespace, name string, s Sink, m *targetMetrics) *target {
	t := &target{
		p:         p,
		namespace: namespace,
		sink:      name,
		label:     s.Label,
		metrics:   m,
		log:       p.log.With(zap.String("namespace", namespace), zap.String("sink", s.Label)),
		rules:     p.store.Namespace(namespace),
		queues:    map[string]*queue{},
		shards:    map[int]*shard{},
		over:      make(chan struct{}),
		unblock:   lifecycle.NewSignal(),
		ended:     lifecycle.NewSignal(),
	}
	t.rejections = &guard.RejectionLog{Log: t.log}
	t.timer = time.AfterFunc(time.Hour, t.tick)
	t.timer.Stop()
	t.guard = guard.New(p.life.Writing, s.Sink, guard.Config{
		SinkTimeout: p.cfg.SinkTimeout,
		BackoffBase: minOpenPause,
		BackoffMax:  maxOpenPause,
		After:       s.After,
		Writes:      p.cfg.MaxWrites,
	}, t.log, &m.Metrics)
	t.slots = t.guard.Slots
	return t
}

// Opens of a sink that fail are so far apart.
const minOpenPause, maxOpenPause = 100 * time.Millisecond, 30 * time.Second

// follow pumps when a sink that let nothing pass lets something pass again.
func (t *target) follow(ctx context.Context) {
	for t.guard.Wait(ctx) {
		t.mu.Lock()
		t.blocked = false
		t.pump()
		t.mu.Unlock()
		select {
		case <-t.unblock:
		case <-ctx.Done():
		}
	}
}

// finish waits, when claiming has ended, until no Write and no call runs and nothing is
// left to settle. Then it closes the sink.
func (t *target) finish() {
	defer close(t.over)
	calling := t.p.life.Calling.Done()
	for {
		t.mu.Lock()
		if t.p.life.Calling.Err() != nil {
			t.abandon()
		}
		done := t.running == 0 && t.unsettled == 0
		t.mu.Unlock()
		if done {
			break
		}
		select {
		case <-t.ended:
		case <-calling:
			calling = nil
		}
	}
	t.mu.Lock()
	t.waits = nil
	t.timer.Stop()
	shards := slices.Collect(maps.Values(t.shards))
	t.mu.Unlock()
	for _, s := range shards {
		if !s.unknown {
			continue
		}
		if err := t.revert(s, guard.StopGrace/2); err != nil {
			t.log.Warn("claims with an unknown outcome are not given back; their leases lapse",
				zap.Int("shard", s.number), zap.Error(err))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.p.cfg.SinkTimeout)
	defer cancel()
	defer context.AfterFunc(t.p.life.Calling, cancel)()
	if err := t.guard.Close(ctx); err != nil {
		t.closed = fmt.Errorf("close sink %s of namespace %s: %w", t.sink, t.namespace, err)
	}
}

// abandon gives up what waits to be settled: the leases lapse. t.mu is held.
func (t *target) abandon() {
	for _, s := range t.shards {
		t.metrics.jobs.WithLabelValues(lapsed).Add(float64(len(s.settlements)))
		t.unsettled -= len(s.settlements)
		s.settlements = nil
	}
}

// shard is what is known of a shard; t.mu is held.
func (t *target) shard(number int) *shard {
	s := t.shards[number]
	if s == nil {
		s = &shard{number: number, lane: t.p.store.NewLane()}
		s.rest.over = func() {
			t.pump()
			t.settle(s)
		}
		t.shards[number] = s
	}
	return s
}

// list notes that a queue that the rule matches has jobs, or is named by the rule.
func (t *target) list(ns *job.Namespace, name string, r *Rule) {
	var wanted []*source
	t.mu.Lock()
	now := time.Now()
	q := t.queues[name]
	if q == nil {
		q = newQueue(name, r)
		q.wait.over = func() { t.readmit(q) }
		t.queues[name] = q
		t.metrics.queues.Set(float64(len(t.queues)))
		t.metrics.limit.Add(float64(q.limit.Get()))
	}
	q.listed = now
	shards := ns.Shards(name)
	for _, shard := range shards {
		if !slices.ContainsFunc(q.sources, func(s *source) bool { return s.shard == shard }) {
			src := &source{queue: q, shard: shard}
			src.rate.over = func() { t.readmit(q) }
			q.sources = append(q.sources, src)
			wanted = append(wanted, src)
		}
	}
	t.mu.Unlock()
	if len(wanted) == 0 {
		return
	}
	// The wakes may call heard while they hold a lock of theirs, so no lock is held here.
	for _, src := range wanted {
		t.p.wakes.Want(ns, src.shard, name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, src := range wanted {
		t.admit(src)
	}
	t.pump()
}

// poll looks at every queue after a list: those whose wakes are not heard are due, and
// those that were not listed for long are forgotten, where lists can be believed.
func (t *target) poll(ns *job.Namespace, listed bool) {
	var forgotten []*queue
	t.mu.Lock()
	now := time.Now()
	for name, q := range t.queues {
		if listed && now.Sub(q.listed) > forgetAfter && q.running == 0 && !q.wait.waits {
			forgotten = append(forgotten, q)
			delete(t.queues, name)
			t.metrics.limit.Sub(float64(q.limit.Get()))
			for _, src := range q.sources {
				src.due = false
			}
			continue
		}
		for _, src := range q.sources {
			if !src.subscribed {
				t.admit(src)
			}
		}
	}
	t.metrics.queues.Set(float64(len(t.queues)))
	t.pump()
	t.mu.Unlock()
	for _, q := range forgotten {
		for _, src := range q.sources {
			t.p.wakes.Unwant(ns, src.shard, q.name)
		}
	}
}

// refresh admits the queues whose limit has changed. Nothing else tells of one that is raised: a
// claim that found no free slot left its source idle, and a rate lets nobody ask for an hour.
func (t *target) refresh() {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, now := t.rules, t.p.store.Namespace(t.namespace)
	if now == nil || now == before {
		return
	}
	t.rules = now
	for name, q := range t.queues {
		if before != nil && now.SameLimit(before, name) {
			continue
		}
		for _, src := range q.sources {
			src.rate.waits = false
			t.admit(src)
		}
	}
	t.waits = slices.DeleteFunc(t.waits, func(w *wait) bool { return !w.waits })
	t.pump()
}

// heard is called for an event of the wakes.
func (t *target) heard(e job.WakeEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Queue == "" {
		for _, q := range t.queues {
			t.heardOf(q, e)
		}
	} else if q := t.queues[e.Queue]; q != nil {
		t.heardOf(q, e)
	}
	t.pump()
}

// heardOf is heard for one queue; t.mu is held. A queue is asked after each event: what
// was pushed before a subscription was not heard of.
func (t *target) heardOf(q *queue, e job.WakeEvent) {
	for _, src := range q.sources {
		if e.Queue == "" || src.shard == e.Shard {
			switch e.Kind {
			case job.WakeSubscribed:
				src.subscribed = true
			case job.WakeLost:
				src.subscribed = false
			}
			t.admit(src)
		}
	}
}
