package push

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/fallback"
	"github.com/spillway-io/spillway/drain/sink/webhook"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/job"
)

var errUnsent = sink.Unsent(errors.New("connection refused"))

// A target that is away for long has not tried the jobs, and is asked about once a second.
func TestATargetThatIsNotReachedUsesUpNoTry(t *testing.T) {
	for name, change := range map[string]func(*Rule){
		"one by one":           func(*Rule) {},
		"batches":              func(r *Rule) { r.Batch = 10 },
		"a back-off of no use": func(r *Rule) { r.BackoffBase, r.BackoffMax = time.Millisecond, time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				change(&r.rule)
				began := time.Now()
				r.sink.write = func(context.Context, []*sink.Batch) error {
					if time.Since(began) < time.Hour {
						return errUnsent
					}
					return nil
				}
				jobs := r.store.publish("welcome", 100, 1)
				r.start()
				clocktest.Pass(time.Minute)
				first := len(r.sink.seen())
				clocktest.Pass(59*time.Minute - time.Second)
				if n := len(r.sink.seen()); first < 60 || first > 120 || n < 3600 || n > 2*3600 {
					t.Errorf("%d Writes in the first minute, %d in the hour", first, n)
				}
				if runs, _ := r.store.figures(); runs > 3*3600 {
					t.Errorf("%d calls to the store", runs)
				}
				r.store.Mu.Lock()
				for _, j := range jobs {
					if j.Attempt > 1 || j.State == job.Dead {
						t.Errorf("%s: attempt %d, %v", j.ID, j.Attempt, j.State)
					}
				}
				r.store.Mu.Unlock()
				clocktest.Pass(5 * time.Second)
				given := r.outcome(unsent)
				r.stop()
				r.wantOutcomes(map[string]int{acked: 100, unsent: given})
				if n := testutil.ToFloat64(r.p.targets[0].metrics.Failures.WithLabelValues(guard.ReasonUnsent)); n < 3600 {
					t.Errorf("%v failures of that reason", n)
				}
			})
		})
	}
}

// One rejection costs a queue that is well a tenth of a second.
func TestATargetThatIsBackIsUsedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		var writes atomic.Int64
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if writes.Add(1) == 1 {
				return errUnsent
			}
			return nil
		}
		r.store.publish("welcome", 100, 1)
		r.start()
		clocktest.Pass(200 * time.Millisecond)
		if n := r.store.acked(); n != 100 {
			t.Errorf("%d acked", n)
		}
		r.stop()
	})
}

// Uncounted is only what no part of the target has seen for certain.
func TestADeliveryThatTheTargetMayHaveSeenCounts(t *testing.T) {
	named := func(errs ...error) error {
		failed := &sink.BatchError{}
		for i, err := range errs {
			if err != nil {
				failed.Fail(0, i, err)
			}
		}
		return failed
	}
	for name, row := range map[string]struct {
		write func(entries int) error
		want  map[string]int
	}{
		"plain":                        {func(int) error { return errDown }, map[string]int{dead: 2}},
		"throttled":                    {func(int) error { return sink.Throttle(errDown, time.Second) }, map[string]int{dead: 2}},
		"one unsent, one not":          {func(int) error { return named(errUnsent, errDown) }, map[string]int{dead: 2}},
		"one unsent, one accepted":     {func(int) error { return named(errUnsent, nil) }, map[string]int{dead: 1, acked: 1}},
		"rejected, its halves unsent":  {func(n int) error { return map[bool]error{true: errUnsent, false: sink.Permanent(errDown)}[n == 1] }, map[string]int{dead: 2}},
		"rejected and unsent":          {func(int) error { return sink.Permanent(errUnsent) }, map[string]int{dead: 2}},
		"all are named, and none sent": {func(int) error { return named(errUnsent, errUnsent) }, map[string]int{unsent: 2}},
		"unsent, and the sink is lost": {func(int) error { return sink.Unsent(sink.ErrNotConnected) }, map[string]int{unsent: 2}},
		"unsent in time":               {func(int) error { return sink.Unsent(context.DeadlineExceeded) }, map[string]int{unsent: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.rule.Batch = 2
				r.sink.write = func(_ context.Context, batches []*sink.Batch) error { return row.write(len(batches[0].Entries)) }
				r.store.publish("welcome", 2, 1)
				r.start()
				clocktest.Pass(50 * time.Millisecond)
				got := map[string]int{}
				for _, o := range outcomes {
					got[o] = r.outcome(o)
				}
				r.wantOutcomes(row.want)
				r.stop()
			})
		})
	}
}

// The tries that a job has used bring it to the next tier, so those of a tier that is not
// reached count; where no tier is reached, the last one is kept.
func TestAJobGoesToTheFallbackOfATargetThatIsNotReached(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		began := time.Now()
		first := &fakeSink{write: func(context.Context, []*sink.Batch) error { return errUnsent }}
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if time.Since(began) < time.Hour {
				return errUnsent
			}
			return nil
		}
		cfg := fallback.Config{MaxAge: 24 * time.Hour, BackoffBase: r.rule.BackoffBase, BackoffMax: r.rule.BackoffMax}
		both := fallback.New(cfg, []fallback.Tier{{Sink: first, Label: "first:"}, {Sink: r.sink, Label: "second:"}}, zap.NewNop())
		r.store.publish("welcome", 10, 3)
		r.p = r.pusher(both)
		clocktest.Pass(2 * time.Hour)
		given := r.outcome(unsent)
		r.stop()
		if given == 0 {
			t.Error("no last try was kept")
		}
		r.wantOutcomes(map[string]int{acked: 10, retried: 20, unsent: given})
	})
}

// On a real Redis, with a real webhook whose receiver starts late: jobs of one try are
// delivered, with their first attempt, and one whose ttl is over meanwhile expires.
func TestRedisAReceiverThatStartsLateGetsEveryJob(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	addr := redistest.FreeAddr(t)
	target, err := url.Parse("http://" + addr + "/jobs")
	if err != nil {
		t.Fatal(err)
	}
	s, err := webhook.New(target)
	if err != nil {
		t.Fatal(err)
	}
	rule := DefaultRule()
	rule.Match, rule.Sink = "*", "crm"
	x := startPush(t, "redis://"+server.Addr, job.DefaultPolicy(), rule, s)
	x.publish(t, "welcome", 50, 1)
	short := &job.Publish{Namespace: x.ns, Queue: "short", Shard: x.ns.Shards("short")[0], Tries: 1, TTL: time.Second, Messages: []job.Message{{Payload: []byte("1")}}}
	x.store.Run(t.Context(), x.store.NewLane(), &job.Batch{Publishes: []*job.Publish{short}})
	if short.Err != nil {
		t.Fatal(short.Err)
	}
	until(t, 30*time.Second, "the short job expires", func() bool { return x.ledger(t).Expired == 1 })

	var delivered, wrong atomic.Int64
	receiver := &http.Server{Addr: addr, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		delivered.Add(1)
		if r.Header.Get("X-Spillway-Attempt") != "1" || !strings.Contains(string(body), `"attempt":1,"tries":1`) {
			wrong.Add(1)
		}
	})}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	web := &httptest.Server{Listener: l, Config: receiver}
	web.Start()
	t.Cleanup(web.Close)
	until(t, 30*time.Second, "every other job is acked", func() bool { return x.ledger(t).Acked == 50 })
	x.stop(t)
	if l := x.ledger(t); l.Dead != 0 || delivered.Load() != 50 || wrong.Load() != 0 {
		t.Errorf("ledger %+v, %d delivered, %d of them wrong", l, delivered.Load(), wrong.Load())
	}
}
