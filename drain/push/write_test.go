package push

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/fallback"
	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/job"
)

func TestAcceptedJobsAreAcked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, job.Policy{Shards: 4, Spread: map[string]int{"bulk": 4}, MaxJobs: 1e6, MaxQueues: 1e3, ReplyTTL: time.Minute})
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
		clocktest.Pass(5 * time.Second)
		r.stop()
		if got := r.store.acked(); got != 600 || r.sink.maxWrites > 8*2 {
			t.Errorf("%d acked, %d Writes at once", got, r.sink.maxWrites)
		}
		slices.Sort(seqs)
		if n := len(slices.Compact(seqs)); n != 300 {
			t.Errorf("%d sequences of 300 jobs on 4 shards", n)
		}
		r.wantOutcomes(map[string]int{acked: 600})
	})
}

func TestAFailedJobComesAgainWithFullJitterUntilItsTriesAreUsedUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.rule.BackoffBase, r.rule.BackoffMax = time.Second, 10*time.Second
		r.sink.write = func(context.Context, []*sink.Batch) error { return errDown }
		r.start()
		jobs := r.store.publish("welcome", 5, 6)
		clocktest.Pass(time.Hour)
		r.stop()
		for _, j := range jobs {
			if len(j.Claims) != 6 || j.State != job.Dead {
				t.Fatalf("%d deliveries, %v", len(j.Claims), j.State)
			}
			for i := range j.Claims[1:] {
				// The queue is slow by then: it writes one job at a time.
				if wait := j.Claims[i+1].Sub(j.Claims[i]); wait > min(10*time.Second, time.Second<<i)+6*time.Second {
					t.Errorf("attempt %d came after %v", i+2, wait)
				}
			}
		}
		r.wantOutcomes(map[string]int{retried: 25, dead: 5})
		if words, _ := r.p.LastError("mail", "welcome"); words != errDown.Error() {
			t.Errorf("last error %q", words)
		}
	})
}

// A throttle is about the queue, so its other jobs keep their tries.
func TestAThrottledQueueIsLeftAloneForAsLongAsTheSinkSays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.rule.Writes = 1
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
		clocktest.Pass(10 * time.Second)
		if got := r.store.acked(); got != 100 {
			t.Errorf("%d acked, want the 100 quick ones", got)
		}
		if n := len(r.sink.of("slow")); n != 1 {
			t.Errorf("%d Writes to a throttled queue", n)
		}
		clocktest.Pass(2 * time.Minute)
		r.stop()
		if got := r.store.acked(); got != 200 || len(slow[0].Claims) != 2 {
			t.Errorf("%d acked, first job %v", got, slow[0].Claims)
		}
		r.wantOutcomes(map[string]int{acked: 200, retried: 1})
	})
}

func TestARejectedJobIsDeadAtOnceAndAloneOfItsBatch(t *testing.T) {
	for _, batch := range []int{1, 16} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.rule.Batch, r.rule.Writes = batch, 2
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
				clocktest.Pass(time.Second)
				r.stop()
				r.wantOutcomes(map[string]int{acked: 62, dead: 2})
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
		r := newRig(t)
		r.rule.Batch, r.rule.Writes, r.rule.BackoffMax = 16, 1, 2*time.Second
		r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
			clocktest.Take(6 * time.Second)
			for _, e := range batches[0].Entries {
				if e.Seq == 7 {
					return sink.Permanent(errDown)
				}
			}
			return nil
		}
		r.store.publish("welcome", 16, 5)
		r.start()
		clocktest.Pass(5 * time.Minute)
		r.stop()
		if got := r.store.acked(); got != 15 || r.outcome(dead) != 1 || r.outcome(gone) != 0 {
			t.Errorf("%d acked, %d dead, %d gone", got, r.outcome(dead), r.outcome(gone))
		}
	})
}

func TestJobsThatTheSinkNamesEndEachByItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
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
		clocktest.Pass(2 * time.Minute)
		r.stop()
		r.wantOutcomes(map[string]int{acked: 90, dead: 10, retried: 20})
		if wait := jobs[6].Claims[1].Sub(jobs[6].Claims[0]); wait < time.Minute || wait > 62*time.Second {
			t.Errorf("the throttled job came again after %v", wait)
		}
	})
}

// A job that failed says what the target answered: its status, and the beginning of its text.
func TestAJobSaysWhatTheTargetAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.write = func(context.Context, []*sink.Batch) error {
			return sink.WithDetail(fmt.Errorf("post to crm: status 500"), "no such user")
		}
		r.store.publish("welcome", 1, 2)
		r.start()
		clocktest.Pass(time.Minute)
		r.stop()
		j, state, err := r.store.Get(t.Context(), r.store.ns, "welcome", job.Ref{Seq: 1})
		if len(j.Errors) != 2 || j.Errors[0].Attempt != 2 || j.Errors[0].Error != "post to crm: status 500: no such user" {
			t.Errorf("got %+v, %v, %v", j.Errors, state, err)
		}
	})
}

func TestASinkThatPanicsFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.write = func(context.Context, []*sink.Batch) error { panic("secret") }
		r.store.publish("welcome", 1, 1)
		r.start()
		clocktest.Pass(time.Second)
		r.stop()
		r.wantOutcomes(map[string]int{dead: 1})
	})
}

func TestAJobGoesToTheFallbackAtItsLastDelivery(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		first := &fakeSink{write: func(context.Context, []*sink.Batch) error { return errDown }}
		cfg := fallback.Config{MaxAge: time.Hour, BackoffBase: r.rule.BackoffBase, BackoffMax: r.rule.BackoffMax}
		both := fallback.New(cfg, []fallback.Tier{{Sink: first, Label: "first:"}, {Sink: r.sink, Label: "second:"}}, zap.NewNop())
		r.store.publish("welcome", 10, 3)
		r.p = r.pusher(both)
		clocktest.Pass(10 * time.Minute)
		r.stop()
		r.wantOutcomes(map[string]int{acked: 10, retried: 20})
	})
}
