package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/webhook"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/job"
)

func TestWhatATargetSaysIsTheResultOrDefersTheJob(t *testing.T) {
	for name, c := range map[string]struct {
		rule     time.Duration // DeferFor
		status   int
		body     string
		result   string
		deferred time.Duration
	}{
		"a result":                       {0, 200, " {\"paid\":true}\n", `{"paid":true}`, 0},
		"no JSON":                        {0, 200, "ok", "", 0},
		"nothing":                        {0, 204, "", "", 0},
		"4 KiB":                          {0, 200, `"` + strings.Repeat("x", 4094) + `"`, `"` + strings.Repeat("x", 4094) + `"`, 0},
		"more":                           {0, 200, `"` + strings.Repeat("x", 4095) + `"`, "", 0},
		"202 without defer_for":          {0, 202, `{"defer":"1h"}`, `{"defer":"1h"}`, 0},
		"200 with defer_for":             {time.Minute, 200, `{"defer":"1h"}`, `{"defer":"1h"}`, 0},
		"202 with defer_for":             {time.Minute, 202, "", "", time.Minute},
		"202 says for how long":          {time.Minute, 202, `{"defer":"1h"}`, "", time.Hour},
		"202 says what cannot be":        {time.Minute, 202, `{"defer":"-1h"}`, "", time.Minute},
		"202 says too long":              {time.Minute, 202, `{"defer":"25h"}`, "", time.Minute},
		"202 says nothing that is known": {time.Minute, 202, `{"defer":1}`, "", time.Minute},
		"202 with 4 MiB":                 {time.Minute, 202, strings.Repeat("x", 4<<20), "", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.rule.DeferFor = c.rule
				r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
					batches[0].Jobs[0].Answered(c.status, []byte(c.body))
					return nil
				}
				jobs := r.store.publish("welcome", 1, 3)
				r.start()
				clocktest.Pass(5 * time.Second)
				r.stop()
				j, rests := jobs[0], time.Duration(0)
				if j.Deferred {
					rests = time.UnixMilli(j.At).Sub(j.Claims[0])
				}
				if j.Acked != (c.deferred == 0) || j.Result != c.result || rests != c.deferred {
					t.Errorf("acked %v with %.40q, deferred for %s", j.Acked, j.Result, rests)
				}
				if c.deferred > 0 {
					r.wantOutcomes(map[string]int{deferred: 1})
				} else {
					r.wantOutcomes(map[string]int{acked: 1})
				}
			})
		})
	}
}

func TestOnlyAJobThatComesAloneHasAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.rule.Batch = 2
		r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
			for _, j := range batches[0].Jobs {
				if alone := len(batches[0].Jobs) == 1; alone != (j.Answered != nil) {
					t.Errorf("of %d jobs", len(batches[0].Jobs))
				}
			}
			return nil
		}
		r.store.publish("welcome", 3, 3)
		r.start()
		clocktest.Pass(5 * time.Second)
		r.stop()
		r.wantOutcomes(map[string]int{acked: 3})
	})
}

// On a real Redis, with a real webhook: one job is done at once, one is settled later, twice, one never, one by a target that
// answers 4 MiB, one by a target that hangs at first. Each has one follow-up, with what the work said.
func TestRedisDeferredCallbacksAndResults(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	var late job.Ref
	var x *process
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var line struct{ Data string }
		_ = json.Unmarshal(body, &line)
		mu.Lock()
		defer mu.Unlock()
		seen[line.Data]++
		switch line.Data {
		case "at once":
			_, _ = io.WriteString(w, `{"paid":true}`)
		case "later":
			w.WriteHeader(202)
			_, _ = io.WriteString(w, `{"defer":"1h"}`)
			ref, ok := x.ns.ParseID("orders", r.Header.Get("X-Spillway-Job-Id"))
			if late = ref; !ok || r.Header.Get("X-Spillway-Attempt") != "1" {
				t.Errorf("headers %v", r.Header)
			}
		case "never":
			if seen[line.Data] == 1 {
				w.WriteHeader(202)
			}
		case "much":
			_, _ = io.WriteString(w, strings.Repeat("x", 4<<20))
		}
	}))
	t.Cleanup(web.Close)
	target, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	s, err := webhook.New(target)
	if err != nil {
		t.Fatal(err)
	}
	rule := DefaultRule()
	rule.Match, rule.Sink, rule.DeferFor, rule.BackoffMax = "orders", "crm", time.Second, time.Second
	policy := job.DefaultPolicy()
	policy.Rules = []job.Rule{{Match: "orders", KeepTrace: job.Span(time.Hour)}}
	x = startPush(t, "redis://"+redistest.Start(t).Addr, policy, rule, s)
	mover, tracer := job.NewMover(x.store), job.NewTracer(x.store)
	if err := errors.Join(mover.Start(t.Context()), tracer.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	p := &job.Publish{Namespace: x.ns, Queue: "orders", Shard: x.ns.Shards("orders")[0], Tries: 3, OnEnd: "done"}
	for _, data := range []string{"at once", "later", "never", "much"} {
		p.Messages = append(p.Messages, job.Message{Payload: []byte(strconv.Quote(data))})
	}
	mu.Lock() // x is written
	lane := x.store.NewLane()
	x.store.Run(t.Context(), lane, &job.Batch{Publishes: []*job.Publish{p}})
	mu.Unlock()
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	until(t, 30*time.Second, "all but one have ended", func() bool {
		l := x.ledger(t)
		return l.Leased == 1 && l.Ready == 3 && l.Delayed == 0
	})
	got, _, err := x.store.Get(t.Context(), x.ns, "orders", late)
	if err != nil || !got.Deferred || got.Attempt != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	for i := range 2 { // settled twice
		a := &job.Ack{Namespace: x.ns, Queue: "orders", Ref: late, Result: []byte(`"late"`)}
		if x.store.Run(t.Context(), lane, &job.Batch{Acks: []*job.Ack{a}}); a.Err != nil || a.Acked != (i == 0) {
			t.Errorf("ack %d: %+v", i, a)
		}
	}
	until(t, 30*time.Second, "it has ended, too", func() bool { // the outbox counts as ready, too
		done, err := x.store.Counts(t.Context(), x.ns, "done")
		return err == nil && done.Ready == 4
	})
	x.stop(t)
	if err := errors.Join(mover.Stop(context.Background()), tracer.Stop(context.Background())); err != nil {
		t.Error(err)
	}
	events, err := x.store.Trace(t.Context(), x.ns, "orders", late)
	var words []string
	for _, e := range events {
		words = append(words, fmt.Sprint(e.Event, e.By, e.Sink, e.Outcome, e.Status))
	}
	if told := strings.Join(words, " "); err != nil || told != "published0 claimedpush0 writtencrmaccepted202 deferredpush0 acked0" {
		t.Errorf("its trace: %s, %v", told, err)
	}
	c := &job.Claim{Namespace: x.ns, Queues: []string{"done"}, TTR: time.Hour, Count: 10}
	x.store.Run(t.Context(), lane, &job.Batch{Claims: []*job.Claim{c}})
	results := map[string]int{}
	for _, j := range c.Jobs {
		var told struct {
			Event  string
			Result json.RawMessage
		}
		if err := json.Unmarshal(j.Payload, &told); err != nil || told.Event != "acked" {
			t.Errorf("%s: %v", j.Payload, err)
		}
		results[string(told.Result)]++
	}
	if len(c.Jobs) != 4 || results[`{"paid":true}`] != 1 || results[`"late"`] != 1 || results[""] != 2 {
		t.Errorf("%d follow-ups with %v", len(c.Jobs), results)
	}
	mu.Lock()
	defer mu.Unlock()
	for data, n := range map[string]int{"at once": 1, "later": 1, "never": 2, "much": 1} {
		if seen[data] != n {
			t.Errorf("%s was delivered %d times, want %d", data, seen[data], n)
		}
	}
}
