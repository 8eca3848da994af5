package push

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/job"
)

// An idle queue that a rule names costs no command, one that a pattern matches a list a
// poll for all together.
func TestIdleQueuesCostNoCommands(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.rule.Match = "welcome"
		r.start()
		clocktest.Pass(time.Minute)
		runs, lists := r.store.figures()
		clocktest.Pass(time.Hour)
		if nowRuns, nowLists := r.store.figures(); nowRuns != runs || nowLists != lists || lists > 0 {
			t.Errorf("an hour cost %d calls and %d lists", nowRuns-runs, nowLists-lists)
		}
		r.store.publish("welcome", 3, 1)
		clocktest.Pass(10 * time.Millisecond)
		if got := r.store.acked(); got != 3 {
			t.Errorf("%d acked 10 ms after the publish", got)
		}
		r.stop()
	})
	t.Run("pattern", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t)
			r.start()
			r.store.publish("welcome", 1, 1)
			clocktest.Pass(5 * time.Second)
			runs, lists := r.store.figures()
			clocktest.Pass(time.Minute)
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
		r := newRig(t)
		r.rule.Match = "mail-*"
		r.start()
		reply := r.store.ns.ID(0, "mail-eu", 1, "")
		for range 3 {
			r.store.publish("mail-eu", 10, 1)
			r.store.publish("sms", 1, 1)
			r.store.publish(reply, 1, 1)
			clocktest.Pass(2 * time.Second)
			if got := len(r.sink.of("mail-eu")); got%10 != 0 || len(r.sink.seen()) != got {
				t.Errorf("%d Writes of the queue, %d in all", got, len(r.sink.seen()))
			}
			if n := r.p.Status().Targets[0].Queues; n != 1 || r.store.Wakes[0].Wanted() != 1 {
				t.Errorf("%d queues, %d subscriptions", n, r.store.Wakes[0].Wanted())
			}
			clocktest.Pass(2 * time.Minute)
			if n := r.p.Status().Targets[0].Queues; n != 0 || r.store.Wakes[0].Wanted() != 0 {
				t.Errorf("%d queues, %d subscriptions after they were idle for long", n, r.store.Wakes[0].Wanted())
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
		if id, star := ns.ID(0, "q", 1, "x"), job.Pattern("*"); star.Matches(id) || !star.Matches("q") || !star.Matches("01ARZ3NDEKTSV4RRFFQ69G5FAV") {
			t.Errorf("%s matches, or what is no id does not", id)
		}
	})
}

// Wakes that are lost, or never heard, delay jobs by a poll at most.
func TestJobsAreFoundWithoutWakes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.rule.Match = "welcome"
		r.start()
		clocktest.Pass(time.Second)
		r.store.Wakes[0].SetDeaf(true, true)
		for range 10 {
			r.store.publish("welcome", 5, 1)
			clocktest.Pass(1300 * time.Millisecond)
		}
		if got := r.store.acked(); got != 50 {
			t.Errorf("%d of 50 acked", got)
		}
		r.stop()
	})
}

// A sink answers slowly, throttles or hangs beyond a number of Writes at once: the queue finds it
// within 30 s, also where it rises or falls, and the gauge says what it found.
func TestWritesFollowWhatTheSinkAnswers(t *testing.T) {
	beyond := map[string]func(ctx context.Context, batches []*sink.Batch) error{
		"slow":      func(context.Context, []*sink.Batch) error { clocktest.Take(400 * time.Millisecond); return nil },
		"throttles": func(context.Context, []*sink.Batch) error { return sink.Throttle(errDown, time.Millisecond) },
		"hangs":     hang,
	}
	for name, write := range beyond {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.rule.Match, r.rule.MinWrites, r.rule.Writes, r.rule.Target = "welcome", 4, 64, 300*time.Millisecond
				r.cfg.SinkTimeout = 2 * time.Second
				var knee atomic.Int64
				r.sink.write = func(ctx context.Context, batches []*sink.Batch) error {
					if _, running := r.sink.state(); int64(running) > knee.Load() {
						return write(ctx, batches)
					}
					clocktest.Take(200 * time.Millisecond)
					return nil
				}
				r.store.publish("welcome", 10_000, 10_000)
				knees := []int64{10, 20, 10}
				if testing.Short() {
					knees = knees[:1]
				}
				for i, takes := range knees {
					if knee.Store(takes); i == 0 {
						r.start()
					}
					clocktest.Pass(30 * time.Second)
					for range 10 {
						clocktest.Pass(time.Second)
						got := testutil.ToFloat64(r.p.targets[0].metrics.limit)
						if got < 0.8*float64(takes) || got > 1.2*float64(takes) {
							t.Errorf("%v Writes at once, and the sink takes %d", got, takes)
						}
					}
				}
				r.stop()
			})
		})
	}
	t.Run("none wait", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t)
			r.rule.Match, r.rule.MinWrites, r.rule.Writes, r.rule.Target = "welcome", 2, 64, 300*time.Millisecond
			r.start()
			for range 1000 {
				clocktest.Pass(50 * time.Millisecond)
				r.store.publish("welcome", 1, 1)
			}
			if got := testutil.ToFloat64(r.p.targets[0].metrics.limit); got != 2 {
				t.Errorf("%v Writes at once, and one is enough", got)
			}
			r.stop()
		})
	})
}

func TestTheFirstRuleThatMatchesCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		other := &fakeSink{}
		r.more["erp"] = Sink{Sink: other, Label: "https://erp"}
		first := r.rule
		first.Match, first.Sink = "order-*", "erp"
		r.rules = []Rule{first}
		r.store.publish("order-1", 5, 1)
		r.store.publish("mail", 7, 1)
		r.start()
		clocktest.Pass(5 * time.Second)
		s := r.p.Status()
		if len(other.seen()) != 5 || len(r.sink.seen()) != 7 || len(s.Targets) != 2 || s.Targets[0].Sink != "erp" || s.Targets[1].State != guard.Open {
			t.Errorf("%d and %d Writes, %+v", len(other.seen()), len(r.sink.seen()), s)
		}
		for queue, want := range map[string]string{"order-1": "erp", "mail": "crm"} {
			if got := r.p.SinkOf("mail", queue); got != want {
				t.Errorf("%s goes to %q, want %q", queue, got, want)
			}
		}
		if got := r.p.SinkOf("sms", "mail"); got != "" {
			t.Errorf("a queue that is not pushed goes to %q", got)
		}
		r.stop()
	})
}

func TestRulesOfPushAreChecked(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Rule){
		"":            func(*Rule) {},
		"match":       func(r *Rule) { r.Match = "mail[a]" },
		"match ":      func(r *Rule) { r.Match = "" },
		"match  ":     func(r *Rule) { r.Match = job.Pattern(strings.Repeat("x", 256)) },
		"match   ":    func(r *Rule) { r.Match = ".x" },
		"sink":        func(r *Rule) { r.Sink = "" },
		"writes":      func(r *Rule) { r.Writes = 0 },
		"writes ":     func(r *Rule) { r.MinWrites, r.Target = 9, time.Second },
		"target":      func(r *Rule) { r.MinWrites = 1 },
		"target ":     func(r *Rule) { r.Target = time.Second },
		"defer_for":   func(r *Rule) { r.DeferFor = time.Millisecond },
		"defer_for ":  func(r *Rule) { r.DeferFor = 25 * time.Hour },
		"defer_for  ": func(r *Rule) { r.DeferFor, r.Batch = time.Minute, 2 },
		"batch":       func(r *Rule) { r.Batch = 129 },
		"backoff":     func(r *Rule) { r.BackoffBase = 0 },
		"backoff ":    func(r *Rule) { r.BackoffMax = time.Millisecond },
	} {
		rule := DefaultRule()
		rule.Match, rule.Sink = "*.mail-*", "crm"
		change(&rule)
		err := rule.Validate()
		var field *partition.FieldError
		if ok := errors.As(err, &field); ok != (want != "") || ok && field.Field != strings.TrimSpace(want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	rule := DefaultRule()
	rule.Match, rule.Sink = "*", "crm"
	for _, target := range []Target{
		{Namespace: "mail", Rules: []Rule{rule}},
		{Namespace: "mail", Rules: []Rule{rule}, Sinks: map[string]Sink{"crm": {Sink: &fakeSink{}}, "erp": {Sink: &fakeSink{}}}},
		{Namespace: "mail", Rules: []Rule{{}}},
	} {
		if target.Validate() == nil {
			t.Errorf("%+v is taken", target)
		}
	}
}

func TestMetricsOfPushFollowTheConventions(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m, err := newMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	m.of("mail", "crm")
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("got %v, %v", problems, err)
	}
	if _, err := newMetrics(reg); err == nil {
		t.Error("they are registered twice")
	}
}
