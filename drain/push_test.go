package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/fallback"
	"github.com/spillway-io/spillway/partition"
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
	r.store = newFakeJobs(t, append(policy, job.DefaultPolicy())[0])
	r.rule.Match, r.rule.Sink = "*", "crm"
	r.sink = &fakeSink{now: func() int64 { return 0 }}
	return r
}

func (r *pushRig) start() { r.t.Helper(); r.p = r.pusher(r.sink) }

// pusher starts one more pusher.
func (r *pushRig) pusher(s sink.Sink) *Pusher {
	r.t.Helper()
	sinks := map[string]PushSink{"crm": {s, "https://crm"}}
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
		if slots := t.guard.limit.get(); t.running != 0 || t.unsettled != 0 || t.slots.available() != slots {
			r.t.Errorf("left behind: %d running, %d unsettled, %d of %d slots", t.running, t.unsettled, t.slots.available(), slots)
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

func TestAcceptedJobsAreAcked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t, job.Policy{Shards: 4, Spread: map[string]int{"bulk": 4}, MaxJobs: 1e6, MaxQueues: 1e3, ReplyTTL: time.Minute})
		r.store.latency = time.Millisecond
		var seqs []int64
		r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
			b := batches[0]
			if len(batches) != 1 || len(b.Entries) != 1 || len(b.Jobs) != 1 || b.Namespace != "mail" || b.Attempt != 1 || b.FirstSeq != b.Entries[0].Seq {
				t.Errorf("got %d batches, %+v", len(batches), b)
			}
			e, j := b.Entries[0], b.Jobs[0]
			if b.Partition == "bulk" {
				r.sink.mu.Lock()
				defer r.sink.mu.Unlock()
				seqs = append(seqs, e.Seq)
			} else if string(j.Attributes) != `{"kind":"a"}` || time.Until(j.Expires) > time.Hour || !strings.HasPrefix(string(e.ID), "J0") || e.Occurred == 0 {
				t.Errorf("got %+v of %+v", j, e)
			}
			return nil
		}
		r.start()
		r.store.publish("welcome", 300, 3, func(j *fakeJob) {
			j.Attributes, j.Expires = []byte("{\n\"kind\":\"a\"}"), time.Now().Add(time.Hour).UnixMilli()
		})
		r.store.publish("bulk", 300, 3, func(j *fakeJob) { j.Seq = (j.Seq + 3) / 4 }) // each shard has its own
		time.Sleep(5 * time.Second)
		r.stop()
		if got := r.store.acked(); got != 600 || r.sink.maxWrites > 8*2 {
			t.Errorf("%d acked, %d Writes at once", got, r.sink.maxWrites)
		}
		slices.Sort(seqs)
		if n := len(slices.Compact(seqs)); n != 300 {
			t.Errorf("%d sequences of 300 jobs on 4 shards", n)
		}
		r.wantOutcomes(map[string]int{pushAcked: 600})
	})
}

func TestAFailedJobComesAgainWithFullJitterUntilItsTriesAreUsedUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.rule.BackoffBase, r.rule.BackoffMax = time.Second, 10*time.Second
		r.sink.write = func(context.Context, []*sink.Batch) error { return errDown }
		r.start()
		jobs := r.store.publish("welcome", 5, 6)
		time.Sleep(time.Hour)
		r.stop()
		for _, j := range jobs {
			if len(j.attempts) != 6 || j.state != job.Dead {
				t.Fatalf("%d deliveries, %v", len(j.attempts), j.state)
			}
			for i := range j.attempts[1:] {
				// The queue is slow by then: it writes one job at a time.
				if wait := j.attempts[i+1].Sub(j.attempts[i]); wait > min(10*time.Second, time.Second<<i)+6*time.Second {
					t.Errorf("attempt %d came after %v", i+2, wait)
				}
			}
		}
		r.wantOutcomes(map[string]int{pushRetried: 25, pushDead: 5})
		if words, _ := r.p.LastError("mail", "welcome"); words != errDown.Error() {
			t.Errorf("last error %q", words)
		}
	})
}

// A throttle is about the queue, so its other jobs keep their tries.
func TestAThrottledQueueIsLeftAloneForAsLongAsTheSinkSays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.rule.Concurrency = 1
		began := time.Now()
		r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
			if batches[0].Partition == "slow" && time.Since(began) < time.Minute {
				return sink.Throttle(errDown, time.Minute)
			}
			return nil
		}
		r.start()
		slow := r.store.publish("slow", 100, 2)
		r.store.publish("quick", 100, 1)
		time.Sleep(10 * time.Second)
		if got := r.store.acked(); got != 100 {
			t.Errorf("%d acked, want the 100 quick ones", got)
		}
		if n := len(r.sink.of("slow")); n != 1 {
			t.Errorf("%d Writes to a throttled queue", n)
		}
		time.Sleep(2 * time.Minute)
		r.stop()
		if got := r.store.acked(); got != 200 || len(slow[0].attempts) != 2 {
			t.Errorf("%d acked, first job %v", got, slow[0].attempts)
		}
		r.wantOutcomes(map[string]int{pushAcked: 200, pushRetried: 1})
	})
}

func TestARejectedJobIsDeadAtOnceAndAloneOfItsBatch(t *testing.T) {
	for _, batch := range []int{1, 16} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newPushRig(t)
				r.rule.Batch, r.rule.Concurrency = batch, 2
				r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
					for _, e := range batches[0].Entries {
						if e.Seq == 7 || e.Seq == 30 {
							return sink.Permanent(errDown)
						}
					}
					return nil
				}
				r.store.publish("welcome", 64, 3)
				r.start()
				time.Sleep(time.Second)
				r.stop()
				r.wantOutcomes(map[string]int{pushAcked: 62, pushDead: 2})
				if n := len(r.sink.seen()); n > 64+2*8 {
					t.Errorf("%d Writes", n)
				}
			})
		})
	}
}

// A bisection that the lease does not leave time for ends with a delivery that counts, and
// goes on one job at a time.
func TestASlowBisectionGoesOnInTheNextLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.rule.Batch, r.rule.Concurrency, r.rule.BackoffMax = 16, 1, 2*time.Second
		r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
			time.Sleep(6 * time.Second)
			for _, e := range batches[0].Entries {
				if e.Seq == 7 {
					return sink.Permanent(errDown)
				}
			}
			return nil
		}
		r.store.publish("welcome", 16, 5)
		r.start()
		time.Sleep(5 * time.Minute)
		r.stop()
		if got := r.store.acked(); got != 15 || r.outcome(pushDead) != 1 || r.outcome(pushGone) != 0 {
			t.Errorf("%d acked, %d dead, %d gone", got, r.outcome(pushDead), r.outcome(pushGone))
		}
	})
}

func TestJobsThatTheSinkNamesEndEachByItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.rule.Batch = 10
		r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
			failed := &sink.BatchError{}
			for i, e := range batches[0].Entries {
				switch j := batches[0].Jobs[i]; {
				case e.Seq%10 == 3:
					failed.Fail(0, i, sink.Permanent(errDown))
				case e.Seq%10 == 5 && j.Attempt == 1:
					failed.Fail(0, i, errDown)
				case e.Seq%10 == 7 && j.Attempt == 1:
					failed.Fail(0, i, sink.Throttle(errDown, time.Minute))
				}
			}
			if len(failed.Failed) > 0 {
				return failed
			}
			return nil
		}
		jobs := r.store.publish("welcome", 100, 2)
		r.start()
		time.Sleep(2 * time.Minute)
		r.stop()
		r.wantOutcomes(map[string]int{pushAcked: 90, pushDead: 10, pushRetried: 20})
		if wait := jobs[6].attempts[1].Sub(jobs[6].attempts[0]); wait < time.Minute || wait > 62*time.Second {
			t.Errorf("the throttled job came again after %v", wait)
		}
	})
}

func TestAQueueHasItsConcurrencyAndRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.rule.Concurrency, r.rule.Rate = 3, 20
		r.sink.write = func(context.Context, []*sink.Batch) error { time.Sleep(100 * time.Millisecond); return nil }
		r.store.publish("welcome", 1000, 1)
		r.start()
		time.Sleep(10 * time.Second)
		if n := r.store.acked(); n < 195 || n > 203 {
			t.Errorf("%d of a rate of 20/s in 10 s", n)
		}
		r.stop()
		if r.sink.maxWrites > 3 {
			t.Errorf("%d Writes at once", r.sink.maxWrites)
		}
	})
}

// A queue whose sink hangs, with more jobs than there are slots, costs the others nothing,
// and queues of one sink take turns.
func TestAQueueThatIsSlowHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t, job.Policy{Shards: 2, MaxJobs: 1e6, MaxQueues: 1e3, ReplyTTL: time.Minute})
		r.cfg.MaxWrites = 16
		var order []string
		r.sink.write = func(ctx context.Context, batches []*sink.Batch) error {
			if batches[0].Partition == "hangs" {
				return hang(ctx, batches)
			}
			r.sink.mu.Lock()
			order = append(order, batches[0].Partition)
			r.sink.mu.Unlock()
			time.Sleep(20 * time.Millisecond)
			return nil
		}
		r.store.publish("hangs", 1000, 9)
		for i := range 40 {
			r.store.publish(fmt.Sprintf("q%02d", i), 50, 1)
		}
		r.start()
		time.Sleep(9 * time.Second)
		if got := r.store.acked(); got != 2000 {
			t.Errorf("%d of 2000 acked while a queue hangs", got)
		}
		r.stop()
		seen := map[string]int{}
		for i, name := range order {
			if seen[name]++; i == 400 {
				for i := range 40 {
					if n := seen[fmt.Sprintf("q%02d", i)]; n < 3 || n > 25 {
						t.Errorf("queue %d had %d of the first 400 Writes", i, n)
					}
				}
			}
		}
	})
}

// While a sink is dead nothing is claimed but probes, so the jobs keep their tries.
func TestADeadSinkUsesUpFewTries(t *testing.T) {
	for _, row := range []struct {
		name           string
		queues, writes int // writes: at most; the times between probes are random
		dead           func(context.Context, []*sink.Batch) error
	}{
		{"one queue, refuses", 1, 1300, func(context.Context, []*sink.Batch) error { return errDown }},
		{"one queue, hangs", 1, 150, hang},
		{"many queues, refuses", 200, 2000, func(context.Context, []*sink.Batch) error { return errDown }},
		{"many queues, hangs", 200, 1200, hang},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newPushRig(t)
				began := time.Now()
				r.sink.write = func(ctx context.Context, batches []*sink.Batch) error {
					if time.Since(began) < 10*time.Minute {
						return row.dead(ctx, batches)
					}
					return nil
				}
				for i := range row.queues {
					r.store.publish(fmt.Sprintf("q%03d", i), 4000/row.queues, 5)
				}
				r.start()
				time.Sleep(10 * time.Minute)
				if n := len(r.sink.seen()); n > row.writes {
					t.Errorf("%d Writes to a dead sink", n)
				}
				time.Sleep(15 * time.Minute)
				if got := r.store.acked(); got != 4000 {
					t.Errorf("%d acked after the sink is back, %d dead", got, r.store.count(job.Dead))
				}
				r.stop()
			})
		})
	}
}

func TestASinkThatIsNotOpenUsesUpNoTry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		began := time.Now()
		r.sink.open = func(context.Context) error {
			if time.Since(began) < time.Hour {
				return errDown
			}
			return nil
		}
		r.store.publish("welcome", 100, 1)
		r.start()
		time.Sleep(2 * time.Hour)
		r.stop()
		r.wantOutcomes(map[string]int{pushAcked: 100})
	})
}

func TestASinkThatLosesItsConnectionIsOpenedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		lost := false // one Write at a time
		r.rule.Concurrency = 1
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if !lost {
				lost = true
				return sink.ErrNotConnected
			}
			return nil
		}
		r.store.publish("welcome", 100, 2)
		r.start()
		time.Sleep(time.Minute)
		r.stop()
		r.wantOutcomes(map[string]int{pushAcked: 100, pushRetried: 1})
		if opens, _ := r.sink.state(); opens != 2 {
			t.Errorf("%d opens", opens)
		}
	})
}

// An idle queue that a rule names costs no command, one that a pattern matches a list a
// poll for all together.
func TestIdleQueuesCostNoCommands(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.rule.Match = "welcome"
		r.start()
		time.Sleep(time.Minute)
		runs, lists := r.store.figures()
		time.Sleep(time.Hour)
		if nowRuns, nowLists := r.store.figures(); nowRuns != runs || nowLists != lists || lists > 0 {
			t.Errorf("an hour cost %d calls and %d lists", nowRuns-runs, nowLists-lists)
		}
		r.store.publish("welcome", 3, 1)
		time.Sleep(10 * time.Millisecond)
		if got := r.store.acked(); got != 3 {
			t.Errorf("%d acked 10 ms after the publish", got)
		}
		r.stop()
	})
	t.Run("pattern", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newPushRig(t)
			r.start()
			r.store.publish("welcome", 1, 1)
			time.Sleep(5 * time.Second)
			runs, lists := r.store.figures()
			time.Sleep(time.Minute)
			nowRuns, nowLists := r.store.figures()
			if nowRuns != runs || nowLists-lists < 45 || nowLists-lists > 85 || r.store.acked() != 1 {
				t.Errorf("a minute cost %d calls and %d lists", nowRuns-runs, nowLists-lists)
			}
			r.stop()
		})
	})
}

func TestQueuesThatMatchAppearAndVanish(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.rule.Match = "mail-*"
		r.start()
		reply := r.store.ns.ID(0, "mail-eu", 1, "")
		for range 3 {
			r.store.publish("mail-eu", 10, 1)
			r.store.publish("sms", 1, 1)
			r.store.publish(reply, 1, 1)
			time.Sleep(2 * time.Second)
			if got := len(r.sink.of("mail-eu")); got%10 != 0 || len(r.sink.seen()) != got {
				t.Errorf("%d Writes of the queue, %d in all", got, len(r.sink.seen()))
			}
			if n := r.p.Status().Targets[0].Queues; n != 1 || r.store.wakes[0].wants() != 1 {
				t.Errorf("%d queues, %d subscriptions", n, r.store.wakes[0].wants())
			}
			time.Sleep(2 * time.Minute)
			if n := r.p.Status().Targets[0].Queues; n != 0 || r.store.wakes[0].wants() != 0 {
				t.Errorf("%d queues, %d subscriptions after they were idle for long", n, r.store.wakes[0].wants())
			}
		}
		if got := len(r.sink.of("mail-eu")); got != 30 {
			t.Errorf("%d Writes", got)
		}
		r.stop()
	})
	t.Run("a star matches no reply queue", func(t *testing.T) {
		t.Parallel()
		ns, err := job.NewNamespace("sw", "mail", job.DefaultPolicy())
		if err != nil {
			t.Fatal(err)
		}
		rule := PushRule{Match: "*"}
		if id := ns.ID(0, "q", 1, "x"); rule.matches(id) || !rule.matches("q") {
			t.Errorf("%s matches", id)
		}
	})
}

// Wakes that are lost, or never heard, delay jobs by a poll at most.
func TestJobsAreFoundWithoutWakes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.rule.Match = "welcome"
		r.start()
		time.Sleep(time.Second)
		w := r.store.wakes[0]
		w.mu.Lock()
		w.on(job.WakeEvent{Kind: job.WakeLost})
		w.deaf = true
		w.mu.Unlock()
		for range 10 {
			r.store.publish("welcome", 5, 1)
			time.Sleep(1300 * time.Millisecond)
		}
		if got := r.store.acked(); got != 50 {
			t.Errorf("%d of 50 acked", got)
		}
		r.stop()
	})
}

func TestTwoPushersShareAQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.store.latency = time.Millisecond
		r.rule.Match = "welcome"
		second := &fakeSink{now: func() int64 { return 0 }}
		r.sink.write = func(context.Context, []*sink.Batch) error { time.Sleep(5 * time.Millisecond); return nil }
		second.write = r.sink.write
		r.start()
		other := r.pusher(second)
		jobs := r.store.publish("welcome", 1000, 1)
		time.Sleep(10 * time.Second)
		r.stop()
		r.stopOne(other)
		for _, j := range jobs {
			if !j.acked || len(j.attempts) != 1 {
				t.Fatalf("%s: acked %v, %d deliveries", j.ID, j.acked, len(j.attempts))
			}
		}
		if a, b := len(r.sink.seen()), len(second.seen()); a+b != 1000 || a < 200 || b < 200 {
			t.Errorf("%d and %d Writes", a, b)
		}
	})
}

func TestStopEndsWritesAndGivesTheRestBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.rule.Concurrency = 4
		r.sink.write = func(context.Context, []*sink.Batch) error { time.Sleep(2 * time.Second); return nil }
		r.store.publish("welcome", 4, 1)
		r.start()
		time.Sleep(time.Second) // four Writes run
		r.store.slow(time.Second)
		rest := r.store.publish("other", 4, 1)
		time.Sleep(100 * time.Millisecond)
		r.p.targets[0].list(r.store.ns, "other", &r.p.spaces[0].rules[0]) // a claim begins
		time.Sleep(100 * time.Millisecond)
		r.stop()
		r.wantOutcomes(map[string]int{pushAcked: 4, pushRequeued: 4})
		for _, j := range rest {
			if j.Attempt != 0 || j.state != job.Ready {
				t.Errorf("%s: attempt %d, %v", j.ID, j.Attempt, j.state)
			}
		}
		if r.sink.closes != 1 {
			t.Errorf("%d closes", r.sink.closes)
		}
	})
}

func TestStopCutsWritesOffWhenItsTimeIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.sink.write = hang
		jobs := r.store.publish("welcome", 4, 2)
		r.start()
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		for _, j := range jobs {
			if j.Attempt != 1 || j.state != job.Ready {
				t.Errorf("%s: attempt %d, %v", j.ID, j.Attempt, j.state)
			}
		}
		if err := r.p.Stop(t.Context()); err != nil {
			t.Errorf("second stop: %v", err)
		}
	})
}

func TestStopBeforeStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		target := PushTarget{Namespace: "mail", Rules: []PushRule{r.rule}, Sinks: map[string]PushSink{"crm": {r.sink, "crm:"}}}
		p, err := NewPusher(r.cfg, r.store, r.store.newWakes, []PushTarget{target}, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Stop(t.Context()), p.Stop(t.Context())); err != nil {
			t.Error(err)
		}
		if p.Start(t.Context()) == nil {
			t.Error("it starts after Stop")
		}
	})
}

// Whatever the store does, each job is delivered once, and acked.
func TestAStoreThatFailsLosesAndDoublesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.store.latency = time.Millisecond
		n := 0
		every := func(k int, err error) func(*job.Batch) error {
			return func(*job.Batch) error {
				if n++; n%k == 0 {
					return err
				}
				return nil
			}
		}
		r.store.fail = every(3, partition.ErrUnavailable)
		r.store.lost = every(5, partition.ErrUnknown)
		jobs := r.store.publish("welcome", 500, 1)
		r.start()
		time.Sleep(5 * time.Minute)
		r.stop()
		for _, j := range jobs {
			if !j.acked || len(j.attempts) != 1 {
				t.Fatalf("%s: acked %v, %d deliveries, %v", j.ID, j.acked, len(j.attempts), j.state)
			}
		}
		r.wantOutcomes(map[string]int{pushAcked: 500})
		if r.p.outage.Failing() != 0 {
			t.Errorf("%d parts still fail", r.p.outage.Failing())
		}
	})
}

func TestAClaimWithAnUnknownOutcomeIsRevertedAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.store.lost = func(b *job.Batch) error { return partition.ErrUnknown }
		jobs := r.store.publish("welcome", 3, 1)
		r.start()
		time.Sleep(20 * time.Millisecond)
		r.stop()
		if r.store.reverts != 1 || jobs[0].state != job.Ready || jobs[0].Attempt != 0 {
			t.Errorf("%d reverts, %v", r.store.reverts, jobs[0].state)
		}
	})
}

// The lane's next claim would take it back, but there may be none for hours.
func TestAClaimWithAnUnknownOutcomeIsRevertedSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.store.latency = time.Millisecond
		began := time.Now()
		r.sink.open = func(context.Context) error {
			if time.Since(began) > 0 {
				return errDown
			}
			return nil
		}
		r.sink.write = func(context.Context, []*sink.Batch) error {
			time.Sleep(20 * time.Millisecond)
			return sink.ErrNotConnected
		}
		failures := 0
		r.store.lost = func(b *job.Batch) error {
			if len(b.Claims) > 0 && b.Claims[0].Queues[0] == "lost" {
				return partition.ErrUnknown
			}
			return nil
		}
		first := r.store.publish("welcome", 1, 2)
		r.start()
		time.Sleep(10 * time.Millisecond)
		jobs := r.store.publish("lost", 1, 1)
		r.p.targets[0].list(r.store.ns, "lost", &r.p.spaces[0].rules[0])
		time.Sleep(5 * time.Millisecond)
		r.store.mu.Lock()
		if jobs[0].state != job.Leased || first[0].state != job.Leased {
			t.Errorf("%v and %v, want both leased", jobs[0].state, first[0].state)
		}
		r.store.failRevert = func() error {
			if failures++; failures < 3 {
				return partition.ErrUnavailable
			}
			return nil
		}
		r.store.mu.Unlock()
		time.Sleep(time.Second)
		r.store.mu.Lock()
		if jobs[0].state != job.Ready || jobs[0].Attempt != 0 || r.store.reverts != 3 {
			t.Errorf("%v, attempt %d, %d reverts", jobs[0].state, jobs[0].Attempt, r.store.reverts)
		}
		r.store.mu.Unlock()
		r.stop()
	})
}

func TestACallThatTheStoreDoesNotAnswerEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.store.slow(time.Hour)
		r.store.publish("welcome", 10, 1)
		r.start()
		time.Sleep(time.Second)
		r.store.slow(time.Millisecond)
		time.Sleep(5 * time.Second)
		if n := r.store.acked(); n != 10 {
			t.Errorf("%d acked", n)
		}
		r.stop()
	})
}

func TestAQueueThatTheStoreRefusesRests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		broken := errors.New("WRONGTYPE")
		r.store.fail = func(b *job.Batch) error {
			for _, c := range b.Claims {
				if c.Queues[0] == "bad" {
					return broken
				}
			}
			return nil
		}
		r.rule.Match = "bad"
		r.start()
		time.Sleep(10 * time.Minute)
		if runs, _ := r.store.figures(); runs > 22 {
			t.Errorf("%d calls", runs)
		}
		r.stop()
	})
}

func TestASinkThatPanicsFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		r.sink.write = func(context.Context, []*sink.Batch) error { panic("secret") }
		r.store.publish("welcome", 1, 1)
		r.start()
		time.Sleep(time.Second)
		r.stop()
		r.wantOutcomes(map[string]int{pushDead: 1})
	})
}

func TestAJobGoesToTheFallbackAtItsLastDelivery(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		first := &fakeSink{now: r.sink.now, write: func(context.Context, []*sink.Batch) error { return errDown }}
		cfg := fallback.Config{MaxAge: time.Hour, BackoffBase: r.rule.BackoffBase, BackoffMax: r.rule.BackoffMax}
		both := fallback.New(cfg, []fallback.Tier{{Sink: first, Label: "first:"}, {Sink: r.sink, Label: "second:"}}, zap.NewNop())
		r.store.publish("welcome", 10, 3)
		r.p = r.pusher(both)
		time.Sleep(10 * time.Minute)
		r.stop()
		r.wantOutcomes(map[string]int{pushAcked: 10, pushRetried: 20})
	})
}

func TestTheFirstRuleThatMatchesCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newPushRig(t)
		other := &fakeSink{now: r.sink.now}
		r.more["erp"] = PushSink{other, "https://erp"}
		first := r.rule
		first.Match, first.Sink = "order-*", "erp"
		r.rules = []PushRule{first}
		r.store.publish("order-1", 5, 1)
		r.store.publish("mail", 7, 1)
		r.start()
		time.Sleep(5 * time.Second)
		s := r.p.Status()
		if len(other.seen()) != 5 || len(r.sink.seen()) != 7 || len(s.Targets) != 2 || s.Targets[0].Sink != "erp" || s.Targets[1].State != SinkOpen {
			t.Errorf("%d and %d Writes, %+v", len(other.seen()), len(r.sink.seen()), s)
		}
		r.stop()
	})
}

func TestRulesOfPushAreChecked(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*PushRule){
		"":            func(*PushRule) {},
		"match":       func(r *PushRule) { r.Match = "mail[a]" },
		"match ":      func(r *PushRule) { r.Match = "" },
		"match  ":     func(r *PushRule) { r.Match = strings.Repeat("x", 256) },
		"match   ":    func(r *PushRule) { r.Match = ".x" },
		"sink":        func(r *PushRule) { r.Sink = "" },
		"concurrency": func(r *PushRule) { r.Concurrency = 0 },
		"rate":        func(r *PushRule) { r.Rate = -1 },
		"batch":       func(r *PushRule) { r.Batch = 129 },
		"backoff":     func(r *PushRule) { r.BackoffBase = 0 },
		"backoff ":    func(r *PushRule) { r.BackoffMax = time.Millisecond },
	} {
		rule := DefaultPushRule()
		rule.Match, rule.Sink = "*.mail-*", "crm"
		change(&rule)
		err := rule.Validate()
		var field *partition.FieldError
		if ok := errors.As(err, &field); ok != (want != "") || ok && field.Field != strings.TrimSpace(want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	rule := DefaultPushRule()
	rule.Match, rule.Sink = "*", "crm"
	for _, target := range []PushTarget{
		{Namespace: "mail", Rules: []PushRule{rule}},
		{Namespace: "mail", Rules: []PushRule{rule}, Sinks: map[string]PushSink{"crm": {&fakeSink{}, ""}, "erp": {&fakeSink{}, ""}}},
		{Namespace: "mail", Rules: []PushRule{{}}},
	} {
		if target.Validate() == nil {
			t.Errorf("%+v is taken", target)
		}
	}
}

func TestMetricsOfPushFollowTheConventions(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m, err := newPushMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	m.of("mail", "crm")
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("got %v, %v", problems, err)
	}
	if _, err := newPushMetrics(reg); err == nil {
		t.Error("they are registered twice")
	}
}
