package push

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/job"
)

// Two pushers share the rate, and use all of it: each asks again when a job may pass, and not before.
func TestAQueueHasItsWritesAndItsRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.rule.Writes = 3
		r.store.Pause = 50 * time.Millisecond
		r.sink.write = func(context.Context, []*sink.Batch) error { clocktest.Take(100 * time.Millisecond); return nil }
		r.store.publish("welcome", 1000, 1)
		other := &fakeSink{write: r.sink.write}
		second := r.pusher(other)
		r.start()
		clocktest.Pass(10 * time.Second)
		if n := r.store.acked(); n < 195 || n > 201 {
			t.Errorf("%d of a rate of 20/s in 10 s", n)
		}
		r.stopOne(second)
		r.stop()
		if r.store.claims > 450 {
			t.Errorf("%d claims for 200 jobs", r.store.claims)
		}
		if r.sink.maxWrites > 3 || other.maxWrites > 3 {
			t.Errorf("%d Writes at once", r.sink.maxWrites)
		}
	})
}

// A queue whose sink hangs, with more jobs than there are slots, costs the others nothing,
// and queues of one sink take turns.
func TestAQueueThatIsSlowHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, job.Policy{Shards: 2, MaxJobs: 1e6, MaxQueues: 1e3, ReplyTTL: time.Minute})
		r.cfg.MaxWrites = 16
		var order []string
		r.sink.write = func(ctx context.Context, batches []*sink.Batch) error {
			if batches[0].Partition == "hangs" {
				return hang(ctx, batches)
			}
			r.sink.mu.Lock()
			order = append(order, batches[0].Partition)
			r.sink.mu.Unlock()
			clocktest.Take(20 * time.Millisecond)
			return nil
		}
		r.store.publish("hangs", 1000, 9)
		for i := range 40 {
			r.store.publish(fmt.Sprintf("q%02d", i), 50, 1)
		}
		r.start()
		clocktest.Pass(9 * time.Second)
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

// The Writes of a queue that hang are its own: another queue has as many at once as it would have
// alone, on the same sink and on another.
func TestAQueueWhoseSinkHangsTakesNoWriteOfAnother(t *testing.T) {
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprintf("a sink of its own %v", own), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.cfg.MaxWrites, r.rule.Writes = 16, 8
				hangs := r.rule
				hangs.Match = "hangs"
				if own {
					hangs.Sink = "erp"
					r.more["erp"] = Sink{Sink: &fakeSink{write: hang}, Label: "https://erp"}
				}
				r.rules = []Rule{hangs}
				release := make(chan struct{})
				r.sink.write = func(ctx context.Context, batches []*sink.Batch) error {
					if batches[0].Partition == "hangs" {
						return hang(ctx, batches)
					}
					<-release
					return nil
				}
				r.start()
				running := func(queue string) int {
					for _, target := range r.p.targets {
						target.mu.Lock()
						defer target.mu.Unlock()
						if q := target.queues[queue]; q != nil {
							return q.running
						}
					}
					return 0
				}
				r.store.publish("hangs", 1000, 9)
				clocktest.Pass(2 * time.Second)
				r.store.publish("well", 1000, 1)
				clocktest.Pass(2 * time.Second)
				if n, others := len(r.sink.of("well")), running("hangs"); n != 8 || others != 8 {
					t.Errorf("%d Writes of the queue run while %d of the other hang, want 8 and 8", n, others)
				}
				close(release)
				clocktest.Pass(2 * time.Second)
				if n := len(r.sink.of("well")); n != 1000 {
					t.Errorf("%d of 1000 Writes were made while the other queue hangs", n)
				}
				if n := running("hangs"); n != 8 {
					t.Errorf("%d Writes hang, want 8", n)
				}
				r.stop()
			})
		})
	}
}

// While a sink is dead nothing is claimed but probes, so the jobs keep their tries.
func TestADeadSinkUsesUpFewTries(t *testing.T) {
	rows := []struct {
		name           string
		queues, writes int // writes: at most; the times between probes are random
		dead           func(context.Context, []*sink.Batch) error
	}{
		{"one queue, hangs", 1, 150, hang},
		{"many queues, rejects", 200, 2000, func(context.Context, []*sink.Batch) error { return errDown }},
		{"one queue, rejects", 1, 1300, func(context.Context, []*sink.Batch) error { return errDown }},
		{"many queues, hangs", 200, 1200, hang},
	}
	if testing.Short() {
		rows = rows[:2]
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
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
				clocktest.Pass(10*time.Minute - time.Millisecond) // it is still dead
				if n := len(r.sink.seen()); n > row.writes {
					t.Errorf("%d Writes to a dead sink", n)
				}
				clocktest.Pass(15 * time.Minute)
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
		r := newRig(t)
		began := time.Now()
		r.sink.open = func(context.Context) error {
			if time.Since(began) < time.Hour {
				return errDown
			}
			return nil
		}
		r.store.publish("welcome", 100, 1)
		r.start()
		clocktest.Pass(2 * time.Hour)
		r.stop()
		r.wantOutcomes(map[string]int{acked: 100})
	})
}

func TestASinkThatLosesItsConnectionIsOpenedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		lost := false // one Write at a time
		r.rule.Writes = 1
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if !lost {
				lost = true
				return sink.ErrNotConnected
			}
			return nil
		}
		r.store.publish("welcome", 100, 2)
		r.start()
		clocktest.Pass(time.Minute)
		r.stop()
		r.wantOutcomes(map[string]int{acked: 100, retried: 1})
		if opens, _ := r.sink.state(); opens != 2 {
			t.Errorf("%d opens", opens)
		}
	})
}

func TestTwoPushersShareAQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.latency = time.Millisecond
		r.rule.Match = "welcome"
		second := &fakeSink{}
		r.sink.write = func(context.Context, []*sink.Batch) error { clocktest.Take(5 * time.Millisecond); return nil }
		second.write = r.sink.write
		r.start()
		other := r.pusher(second)
		jobs := r.store.publish("welcome", 1000, 1)
		clocktest.Pass(10 * time.Second)
		r.stop()
		r.stopOne(other)
		for _, j := range jobs {
			if !j.Acked || len(j.Claims) != 1 {
				t.Fatalf("%s: acked %v, %d deliveries", j.ID, j.Acked, len(j.Claims))
			}
		}
		if a, b := len(r.sink.seen()), len(second.seen()); a+b != 1000 || a < 200 || b < 200 {
			t.Errorf("%d and %d Writes", a, b)
		}
	})
}

// Time alone lets a queue go on after a hold, and a shard of it where its rate was used up. How many
// shards it is spread over must not multiply a hold, and each of them has its share.
func TestAQueueThatWaitsHasOneTimerHoweverItIsSpread(t *testing.T) {
	for _, row := range []struct {
		name  string
		rate  int // a second
		write error
	}{
		{"rate", 10, nil},
		{"hold", 0, sink.Throttle(errDown, 100*time.Millisecond)},
	} {
		for spread := 1; spread <= 4; spread++ {
			t.Run(fmt.Sprintf("%s, spread %d", row.name, spread), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					policy := job.Policy{Shards: 8, MaxJobs: 1e6, MaxQueues: 1e3, ReplyTTL: time.Minute}
					if spread > 1 {
						policy.Spread = map[string]int{"welcome": spread}
					}
					r := newRig(t, policy)
					r.rule.Match = "welcome"
					waits := 2 // for the queue, and for a slot
					if row.rate > 0 {
						r.store.Pause, waits = time.Second/time.Duration(row.rate)*time.Duration(spread), 1+spread
					}
					shards := map[int]int{}
					r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
						r.store.Mu.Lock()
						defer r.store.Mu.Unlock()
						shards[r.store.jobs[string(batches[0].Entries[0].ID)].Ref.Shard]++
						return row.write
					}
					r.store.publish("welcome", 4000, 1000)
					r.start()
					clocktest.Pass(10 * time.Second)
					r.store.Mu.Lock()
					if r.store.looks > 1500 {
						t.Errorf("%d looks at what can be claimed", r.store.looks)
					}
					r.store.Mu.Unlock()
					target := r.p.targets[0]
					target.mu.Lock()
					if n := len(target.waits); n > waits {
						t.Errorf("%d waits", n)
					}
					target.mu.Unlock()
					r.stop()
					if n := r.store.acked(); row.rate > 0 && (n < 98 || n > 100+spread) { // one more of each shard
						t.Errorf("%d of a rate of 10/s in 10 s", n)
					}
					for _, n := range shards {
						if len(shards) != spread || n < len(r.sink.seen())/spread/2 {
							t.Errorf("%d Writes of a shard: %v", n, shards)
						}
					}
				})
			})
		}
	}
}

// What a claim says of a limit that is another one when its answer arrives holds nothing back.
func TestAnAnswerUnderARuleOfBeforeHoldsNothingBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		policy := job.DefaultPolicy()
		policy.Rules = []job.Rule{{Match: "*"}}
		if err := policy.Rules[0].Rate.UnmarshalText([]byte("1/h")); err != nil {
			t.Fatal(err)
		}
		r := newRig(t, policy)
		r.store.Pause = time.Hour
		r.start()
		var once sync.Once
		r.store.answered = func() {
			once.Do(func() {
				policy.Rules = nil
				r.store.SetPause(0)
				r.store.Set(t, "mail", policy)
				r.p.Refresh()
			})
		}
		r.store.publish("welcome", 5, 1)
		clocktest.Pass(time.Minute)
		if n := r.store.acked(); n != 5 {
			t.Errorf("%d of 5 acked a minute after the rate was removed", n)
		}
		r.stop()
	})
}

// A sink may ask for a day.
func TestNothingOfAQueueOnHoldOutlivesStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.rule.BackoffMax = 24 * time.Hour
		r.sink.write = func(context.Context, []*sink.Batch) error { return sink.Throttle(errDown, 24*time.Hour) }
		r.store.publish("welcome", 100, 9)
		r.start()
		clocktest.Pass(time.Minute)
		target := r.p.targets[0]
		target.mu.Lock()
		if len(target.waits) == 0 {
			t.Error("the queue does not wait")
		}
		target.mu.Unlock()
		r.stop()
	})
}
