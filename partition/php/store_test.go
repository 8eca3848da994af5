package php

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/job"
)

// shop is a namespace on a redis-server of its own.
type shop struct {
	t *testing.T
	*Store
	ns    *job.Namespace
	redis *redis.Client
	lane  *job.Lane
}

func open(t *testing.T, flavor Flavor, change func(*Policy)) *shop {
	t.Helper()
	server := redistest.Start(t)
	b := backendtest.Open(t, backend.Config{URL: server.URL()})
	p := DefaultPolicy(flavor)
	p.Rules = []job.Rule{{Match: "mail"}, {Match: "other"}, {Match: "bulk*", Tries: 9}}
	if change != nil {
		change(&p)
	}
	s, err := Open(Config{Prefix: "sw", Namespaces: map[string]Policy{"shop": p}}, b, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	opt, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	return &shop{t, s, s.Namespace("shop"), c, s.NewLane()}
}

func (s *shop) publish(queue string, messages ...string) *job.Publish {
	s.t.Helper()
	p := &job.Publish{Namespace: s.ns, Queue: queue}
	for _, m := range messages {
		p.Messages = append(p.Messages, job.Message{Payload: []byte(m)})
	}
	s.Run(s.t.Context(), s.lane, &job.Batch{Publishes: []*job.Publish{p}})
	return p
}

func (s *shop) claim(count int, queues ...string) []job.Job {
	s.t.Helper()
	c := &job.Claim{Namespace: s.ns, Queues: queues, TTR: time.Minute, Count: count}
	s.Run(s.t.Context(), s.lane, &job.Batch{Claims: []*job.Claim{c}})
	if c.Err != nil {
		s.t.Fatal(c.Err)
	}
	return c.Jobs
}

func (s *shop) settle(j job.Job, verb job.Verb, after time.Duration) job.State {
	s.t.Helper()
	x := &job.Settle{Namespace: s.ns, Queue: j.Queue, Ref: j.Ref, Verb: verb, After: after}
	s.Run(s.t.Context(), s.lane, &job.Batch{Settles: []*job.Settle{x}})
	if x.Err != nil {
		s.t.Fatal(x.Err)
	}
	return x.State
}

func (s *shop) ack(j job.Job) bool {
	s.t.Helper()
	a := &job.Ack{Namespace: s.ns, Queue: j.Queue, Ref: j.Ref}
	s.Run(s.t.Context(), s.lane, &job.Batch{Acks: []*job.Ack{a}})
	if a.Err != nil {
		s.t.Fatal(a.Err)
	}
	return a.Acked
}

func TestAPublishedJobIsAPayloadOfTheLibrary(t *testing.T) {
	t.Parallel()
	message := `{"job":"App\\Jobs\\Mail@fire","data":{"big":12345678901234567890,"e":[],"o":{}},"tries":3,"timeout":30,"id":"mine"}`
	for flavor, want := range map[Flavor]string{
		Think3:  `{"job":"App\\Jobs\\Mail@fire","maxTries":3,"timeout":30,"data":{"big":12345678901234567890,"e":[],"o":{}},"id":"mine","attempts":0}`,
		Think2:  `{"job":"App\\Jobs\\Mail@fire","data":{"big":12345678901234567890,"e":[],"o":{}},"id":"mine","attempts":1}`,
		Laravel: `,"displayName":"App\\Jobs\\Mail","job":"App\\Jobs\\Mail@fire","maxTries":3,"maxExceptions":null,"failOnTimeout":false,"backoff":null,"timeout":30,"data":{"big":12345678901234567890,"e":[],"o":{}},"createdAt":`,
	} {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			s := open(t, flavor, func(p *Policy) { p.KeyPrefix = "app_" })
			if p := s.publish("mail", message); p.Err != nil || p.Count != 1 {
				t.Fatal(p.Count, p.Err)
			}
			key := "app_" + flavor.base("mail", false)
			if got := s.redis.LRange(t.Context(), key, 0, -1).Val(); len(got) != 1 || !strings.Contains(got[0], want) || !json.Valid([]byte(got[0])) {
				t.Errorf("%s holds %s", key, got)
			}
			if n := s.redis.LLen(t.Context(), key+":notify").Val(); n != flag(flavor.notifies()) {
				t.Errorf("%d notifications", n)
			}
		})
	}
}

func TestAWholePayloadKeepsEveryByteButTheDigitsOfAttempts(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		`{"job":"A@f","data":{"attempts":7},"attempts":3,"x":1.50}`: `{"job":"A@f","data":{"attempts":7},"attempts":0,"x":1.50}`,
		`{"attempts":0,"job":"A@f"}`:                                `{"attempts":0,"job":"A@f"}`,
		` { "job" : "A@f" , "attempts" : 12 } `:                     ` { "job" : "A@f" , "attempts" : 0 } `,
		`{"attempts":5,"job":"A@f","attempts":6}`:                   `{"attempts":5,"job":"A@f","attempts":0}`,
		`{"job":"A@f","d":"\"attempts\":9","attempts":null}`:        `{"job":"A@f","d":"\"attempts\":9","attempts":0}`,
	} {
		got, err := Laravel.Payload([]byte(message), 0)
		if err != nil || string(got) != want {
			t.Errorf("%s became %s, %v", message, got, err)
		}
	}
}

func TestWhatPHPCouldNotRunIsRejectedWhole(t *testing.T) {
	t.Parallel()
	s := open(t, Laravel, nil)
	for why, message := range map[string]string{
		"no JSON object":     `[1]`,
		"is no UTF-8":        "{\"job\":\"\xff\"}",
		"a surrogate pair":   `{"job":"A@f","data":"\ud83d\u0041"}`,
		"deeper than 512":    `{"job":"A@f","data":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`,
		"larger than 1 MiB":  `{"job":"A@f","data":"` + strings.Repeat("x", 1<<20) + `"}`,
		"job is missing":     `{"data":1}`,
		"whole number, or":   `{"job":"A@f","tries":1.5}`,
		"seconds, or null":   `{"job":"A@f","timeout":"x"}`,
		"id is text":         `{"job":"A@f","id":7}`,
		"outside of PHP":     `{"job":"Illuminate\\Queue\\CallQueuedHandler@call","data":{}}`,
		"no JSON object suc": `{"job":"A@f"} {"job":"B@f"}`,
	} {
		p := s.publish("mail", `{"job":"A@f"}`, message)
		var wrong *PayloadError
		if !errors.As(p.Err, &wrong) || !strings.Contains(p.Err.Error(), why) || !strings.Contains(p.Err.Error(), "job 1") {
			t.Errorf("%.60s: got %v, want %s", message, p.Err, why)
		}
	}
	if n := s.redis.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys", n)
	}
	if p := s.publish("unknown", `{"job":"A@f"}`); !errors.Is(p.Err, job.ErrNoQueue) {
		t.Errorf("got %v", p.Err)
	}
}

func TestAJobIsClaimedSettledAndCounted(t *testing.T) {
	t.Parallel()
	for _, flavor := range Flavors {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			s := open(t, flavor, func(p *Policy) { p.Tries = 3 })
			for i := range 7 {
				s.publish("mail", fmt.Sprintf(`{"job":"A@f","data":%d}`, i))
			}
			jobs := s.claim(7, "other", "mail")
			if len(jobs) != 7 || jobs[0].Attempt != 1 || jobs[0].Tries != 3 || !bytes.Contains(jobs[0].PHP, []byte(`"job":"A@f"`)) {
				t.Fatalf("got %d jobs, %+v", len(jobs), jobs)
			}
			if again := s.claim(7, "mail"); len(again) != 0 {
				t.Errorf("claimed twice: %v", again)
			}
			if !s.ack(jobs[0]) || s.ack(jobs[0]) {
				t.Error("an ack is not once")
			}
			for i, x := range []struct {
				verb  job.Verb
				after time.Duration
				want  job.State
			}{{job.Nack, 0, job.Ready}, {job.Nack, time.Hour, job.Delayed}, {job.Bury, 0, job.Dead}, {job.Touch, time.Hour, job.Leased},
				{job.Requeue, 0, job.Ready}, {job.Release, time.Hour, job.Delayed}} {
				if got := s.settle(jobs[i+1], x.verb, x.after); got != x.want {
					t.Errorf("verb %d: %v, want %v", x.verb, got, x.want)
				}
			}
			counts, err := s.Counts(t.Context(), s.ns, "mail")
			if err != nil || counts.Ready != 2 || counts.Delayed != 2 || counts.Leased != 1 || counts.Dead != 1 || counts.Reserved != 0 {
				t.Errorf("got %+v, %v", counts, err)
			}
			dead, total, err := s.Dead(t.Context(), s.ns, "mail", 0, 10)
			if err != nil || total != 1 || len(dead) != 1 || dead[0].Reason != job.Buried || dead[0].ID == "" {
				t.Errorf("got %+v, %d, %v", dead, total, err)
			}
			ref, ok := s.ns.ParseID("mail", dead[0].ID)
			if j, state, err := s.Get(t.Context(), s.ns, "mail", ref); !ok || err != nil || state != job.Dead || j.ID != dead[0].ID {
				t.Errorf("got %v, %v, %v", j, state, err)
			}
			if n, err := s.ActOnDead(t.Context(), &job.DeadAct{Namespace: s.ns, Queue: "mail", Verb: job.RespawnDead, Limit: 10}); n != 1 || err != nil {
				t.Errorf("respawned %d, %v", n, err)
			}
			for range 3 {
				if j := s.claim(1, "mail"); len(j) != 1 {
					t.Fatal("no job")
				} else if s.settle(j[0], job.Bury, 0); j[0].Attempt > 2 {
					t.Errorf("attempt %d", j[0].Attempt)
				}
			}
			if n, err := s.ActOnDead(t.Context(), &job.DeadAct{Namespace: s.ns, Queue: "mail", Verb: job.DeleteDead, Limit: 2}); n != 2 || err != nil {
				t.Errorf("deleted %d, %v", n, err)
			}
			if due, err := s.Forecast(t.Context(), s.ns, "mail", 40*time.Minute, 3); err != nil || fmt.Sprint(due) != "[0 2 0]" {
				t.Errorf("forecast %v, %v", due, err)
			}
			if n, err := s.Purge(t.Context(), s.ns, "mail", true); n != 4 || err != nil {
				t.Errorf("purged %d, %v", n, err)
			}
			fields, err := s.redis.HGetAll(t.Context(), s.named("shop").keys("mail").account).Result()
			a := numbers(fields)
			if err != nil || a["published"] != 7 || a["acked"] != 1 ||
				a["claimed"] != a["acked"]+a["nacked"]+a["requeued"]+a["buried"]+a["unfit"]+a["lapsed"] {
				t.Errorf("account %v, %v", a, err)
			}
		})
	}
}

func TestADeadJobOfPHPSaysWhyItDied(t *testing.T) {
	t.Parallel()
	for _, flavor := range Flavors {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			s := open(t, flavor, func(p *Policy) { p.Tries = 1 })
			for _, x := range []struct {
				verb        job.Verb
				error, want string
				reason      job.Reason
			}{
				{job.Bury, "the child has died: signal: killed", "the child has died: signal: killed", job.Buried},
				{job.Nack, "1+1 2\n{\"attempts\":9} \xff" + strings.Repeat("é", 2000), "1+1 2 {\"attempts\":9} ", job.Nacked},
				{job.Bury, "", "", job.Buried},
			} {
				s.publish("mail", `{"job":"A@f","data":"x"}`)
				j := s.claim(1, "mail")[0]
				end := &job.Settle{Namespace: s.ns, Queue: "mail", Ref: j.Ref, Verb: x.verb, Error: x.error}
				s.Run(t.Context(), s.lane, &job.Batch{Settles: []*job.Settle{end}})
				if end.State != job.Dead || end.Err != nil {
					t.Fatalf("settle: %v, %v", end.State, end.Err)
				}
				dead, _, err := s.Dead(t.Context(), s.ns, "mail", 0, 10)
				if err != nil || len(dead) != 1 {
					t.Fatalf("%d dead: %v", len(dead), err)
				}
				got, _, err := s.Get(t.Context(), s.ns, "mail", j.Ref)
				for _, d := range []job.Job{dead[0], got} {
					why := job.Failure{}
					if len(d.Errors) > 0 {
						why = d.Errors[0]
					}
					if err != nil || d.Reason != x.reason || !strings.HasPrefix(why.Error, x.want) || len(why.Error) > job.MaxError || (why.Error == "") != (x.want == "") ||
						x.want != "" && (why.AtMS != d.At || why.Attempt != 1) || !bytes.Contains(d.PHP, []byte(`"job":"A@f"`)) || !json.Valid(d.Payload) {
						t.Errorf("%s: got %+v, %v", x.want, d, err)
					}
				}
				if n, err := s.ActOnDead(t.Context(), &job.DeadAct{Namespace: s.ns, Queue: "mail", Verb: job.RespawnDead, Limit: 10}); n != 1 || err != nil {
					t.Errorf("respawned %d, %v", n, err)
				}
				again := s.claim(1, "mail")
				if len(again) != 1 || again[0].Attempt != 1 || !json.Valid(again[0].Payload) || !s.ack(again[0]) {
					t.Errorf("again: %+v", again)
				}
			}
		})
	}
}

func TestClaimsOfTheSameQueuesShareACall(t *testing.T) {
	t.Parallel()
	s := open(t, Think3, nil)
	for i := range 5 {
		s.publish("mail", fmt.Sprintf(`{"job":"A@f","data":%d}`, i))
	}
	var claims []*job.Claim
	for range 4 {
		claims = append(claims, &job.Claim{Namespace: s.ns, Queues: []string{"mail"}, TTR: time.Minute, Count: 2, ReportLeft: true})
	}
	before := s.redis.Info(t.Context(), "commandstats").Val()
	s.Run(t.Context(), s.lane, &job.Batch{Claims: claims})
	if got := fmt.Sprint(len(claims[0].Jobs), len(claims[1].Jobs), len(claims[2].Jobs), len(claims[3].Jobs)); got != "2 2 1 0" {
		t.Errorf("got %s", got)
	}
	calls := func(info string) (n int) {
		_, rest, _ := strings.Cut(info, "cmdstat_evalsha:calls=")
		_, _ = fmt.Sscanf(rest, "%d", &n)
		return n
	}
	if n := calls(s.redis.Info(t.Context(), "commandstats").Val()) - calls(before); n != 1 {
		t.Errorf("%d calls", n)
	}
	if claims[0].Left[0] != 0 {
		t.Errorf("left %v", claims[0].Left)
	}
}

func TestAKeyStoresOnce(t *testing.T) {
	t.Parallel()
	s := open(t, Think3, nil)
	for i, repeated := range []bool{false, true} {
		p := &job.Publish{Namespace: s.ns, Queue: "mail", Key: "k", Messages: []job.Message{{Payload: []byte(`{"job":"A@f"}`)}}}
		s.Run(t.Context(), s.lane, &job.Batch{Publishes: []*job.Publish{p}})
		if p.Err != nil || p.Count != 1 || p.Repeated != repeated {
			t.Errorf("%d: %+v", i, p)
		}
	}
	if n := s.redis.LLen(t.Context(), "{queues:mail}").Val(); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

func TestAKeyOfAnotherTypeIsNamed(t *testing.T) {
	t.Parallel()
	s := open(t, Laravel, nil)
	s.redis.Set(t.Context(), "queues:mail", "x", 0)
	if p := s.publish("mail", `{"job":"A@f"}`); !errors.Is(p.Err, job.ErrForeignType) {
		t.Errorf("got %v", p.Err)
	}
	c := &job.Claim{Namespace: s.ns, Queues: []string{"mail"}, TTR: time.Minute, Count: 1}
	if s.Run(t.Context(), s.lane, &job.Batch{Claims: []*job.Claim{c}}); !errors.Is(c.Err, job.ErrForeignType) {
		t.Errorf("got %v", c.Err)
	}
	if _, err := s.Counts(t.Context(), s.ns, "mail"); !errors.Is(err, job.ErrForeignType) {
		t.Errorf("got %v", err)
	}
}

func TestAClaimWithAnUnknownOutcomeIsTakenBack(t *testing.T) {
	t.Parallel()
	s := open(t, Laravel, nil)
	s.publish("mail", `{"job":"A@f"}`)
	memory := s.lane.Other.(*lane)
	jobs := s.claim(1, "mail")
	memory.unknown[target{"shop", "mail"}] = memory.name + ".2" // the publish had none, the claim is the first
	memory.unknown[target{"shop", "mail"}] = fmt.Sprintf("%s.%d", memory.name, memory.claims)
	again := s.claim(1, "mail")
	if len(again) != 1 || again[0].Attempt != 1 || again[0].Seq == jobs[0].Seq {
		t.Errorf("got %+v after %+v", again, jobs)
	}
	if s.ack(jobs[0]) {
		t.Error("the delivery that was taken back is acked")
	}
}

func TestPatternsFindQueuesOfPHP(t *testing.T) {
	t.Parallel()
	for _, flavor := range Flavors {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			s := open(t, flavor, func(p *Policy) { p.KeyPrefix = "app_" })
			base := func(q string) string { return "app_" + flavor.base(q, false) }
			s.redis.RPush(t.Context(), base("bulk1"), "{}")
			s.redis.ZAdd(t.Context(), base("bulk2")+":delayed", redis.Z{Score: 1, Member: "{}"})
			s.redis.RPush(t.Context(), base("secret"), "{}")
			s.redis.RPush(t.Context(), flavor.base("bulk3", false), "{}")
			got, err := s.Queues(t.Context(), s.ns)
			if err != nil || strings.Join(got, " ") != "bulk1 bulk2 mail other" {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestQueuesThatAreNotServedForTheirNamesAreTold(t *testing.T) {
	t.Parallel()
	for _, flavor := range Flavors {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			s := open(t, flavor, func(p *Policy) { p.Rules = []job.Rule{{Match: "*"}} })
			core, logs := observer.New(zap.WarnLevel)
			s.log = zap.New(core)
			for _, queue := range []string{"plain", "high:mail"} {
				s.redis.RPush(t.Context(), flavor.base(queue, false), "{}")
				s.redis.RPush(t.Context(), flavor.base(queue, false)+":notify", "1")
			}
			s.redis.ZAdd(t.Context(), flavor.base("high:mail", false)+":delayed", redis.Z{Score: 1, Member: "{}"})
			for range 2 {
				if got, err := s.Queues(t.Context(), s.ns); err != nil || strings.Join(got, " ") != "plain" {
					t.Errorf("got %v, %v", got, err)
				}
				s.named("shop").names.at = time.Time{}
			}
			if all := logs.All(); len(all) != 1 || all[0].ContextMap()["queue"] != "high:mail" {
				t.Errorf("got %v", all)
			}
		})
	}
}

func TestAWaitingClaimIsWokenByAPushOfPHPAndByADueTime(t *testing.T) {
	t.Parallel()
	for name, poll := range map[string]time.Duration{"in Redis": 0, "polled": 20 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, Laravel, func(p *Policy) { p.Poll = poll })
			events := make(chan job.WakeEvent, 1000)
			w := newWakes(s.Store, func(e job.WakeEvent) { events <- e })
			if err := w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = w.Stop(context.Background()) }()
			next := func(kind job.WakeKind) {
				t.Helper()
				for {
					select {
					case e := <-events:
						if e.Kind == kind && e.Queue == "mail" && e.Namespace == "shop" {
							return
						}
					case <-time.After(10 * time.Second):
						t.Fatalf("no event %d", kind)
					}
				}
			}
			w.Want(s.ns, 0, "mail")
			next(job.WakeSubscribed)
			s.redis.RPush(t.Context(), "queues:mail", `{"job":"A@f","attempts":0}`)
			next(job.WakeHeard)
			if jobs := s.claim(1, "mail"); len(jobs) != 1 || !s.ack(jobs[0]) {
				t.Fatal("no job")
			}
			p := &job.Publish{Namespace: s.ns, Queue: "mail", Delay: 700 * time.Millisecond, Messages: []job.Message{{Payload: []byte(`{"job":"A@f"}`)}}}
			s.Run(t.Context(), s.lane, &job.Batch{Publishes: []*job.Publish{p}})
			for got := 0; got == 0; {
				next(job.WakeHeard)
				got = len(s.claim(1, "mail"))
			}
			w.Unwant(s.ns, 0, "mail")
		})
	}
}

func TestAPolicyOutsideItsBoundsIsNamed(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*Policy){
		"flavor":          func(p *Policy) { p.Flavor = "rails" },
		"key_prefix":      func(p *Policy) { p.KeyPrefix = "a*" },
		"cache_prefix":    func(p *Policy) { p.CachePrefix = "{x}" },
		"tries":           func(p *Policy) { p.Tries = -1 },
		"retry_after":     func(p *Policy) { p.RetryAfter = time.Millisecond },
		"ttr":             func(p *Policy) { p.TTR = 0 },
		"poll":            func(p *Policy) { p.Poll = time.Microsecond },
		"max_keys":        func(p *Policy) { p.MaxKeys = 0 },
		"queues":          func(p *Policy) { p.Rules = nil },
		"queues[0].match": func(p *Policy) { p.Rules[0].Burst = 1 },
		"queues[0].tries": func(p *Policy) { p.Rules[0].Tries = job.MaxTries + 1 },
	} {
		p := DefaultPolicy(Laravel)
		p.Rules = []job.Rule{{Match: "mail"}}
		change(&p)
		var wrong *backend.FieldError
		if err := p.Validate(); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestTheRestartSignalOfPHPIsSeenAndSet(t *testing.T) {
	t.Parallel()
	for flavor, key := range map[Flavor]string{Laravel: "cache_illuminate:queue:restart", Think3: "cache_think:queue:restart"} {
		s := open(t, flavor, func(p *Policy) { p.CachePrefix = "cache_" })
		if got := s.RestartSignal(t.Context(), "shop"); got != "" {
			t.Errorf("a signal before any: %s", got)
		}
		seen := func(change func()) string {
			before := s.RestartSignal(t.Context(), "shop")
			change()
			for t.Context().Err() == nil {
				if now := s.RestartSignal(t.Context(), "shop"); now != before {
					return now
				}
				s.named("shop").restart.at = time.Time{} // as if a second had passed
			}
			return ""
		}
		first := seen(func() { s.redis.Set(t.Context(), key, "i:1700000000;", 0) })
		second := seen(func() {
			if err := s.Restart(t.Context(), "shop"); err != nil {
				t.Fatal(err)
			}
		})
		if n, err := s.redis.Get(t.Context(), key).Int64(); first == "" || second == first || err != nil || n < 1_700_000_000 {
			t.Errorf("%s, %s; the key has %d, %v", first, second, n, err)
		}
	}
}

func TestALaneTellsOfClaimsToTakeBack(t *testing.T) {
	t.Parallel()
	s := open(t, Laravel, nil)
	s.publish("mail", `{"job":"A@f"}`)
	s.publish("other", `{"job":"A@f"}`)
	memory := s.lane.Other.(*lane)
	lost := s.claim(1, "other")
	memory.unknown[target{"shop", "other"}] = fmt.Sprintf("%s.%d", memory.name, memory.claims)
	if jobs := s.claim(1, "mail"); len(jobs) != 1 || !s.lane.Unknown {
		t.Errorf("got %d jobs, unknown %v", len(jobs), s.lane.Unknown)
	}
	if err := s.Revert(t.Context(), s.lane); err != nil {
		t.Fatal(err)
	}
	if again := s.claim(1, "other"); len(again) != 1 || again[0].Attempt != lost[0].Attempt || s.lane.Unknown {
		t.Errorf("got %+v, unknown %v", again, s.lane.Unknown)
	}
}

func TestAWaitingClaimIsWokenWhereTheUserMayNotBlock(t *testing.T) {
	t.Parallel()
	s := open(t, Laravel, nil)
	if err := s.redis.Do(t.Context(), "ACL", "SETUSER", "default", "-blmove").Err(); err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{}, 1)
	w := newWakes(s.Store, func(e job.WakeEvent) {
		if e.Kind == job.WakeHeard {
			select {
			case heard <- struct{}{}:
			default:
			}
		}
	})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Stop(context.Background()) }()
	w.Want(s.ns, 0, "mail")
	defer w.Unwant(s.ns, 0, "mail")
	s.redis.RPush(t.Context(), "queues:mail", `{"job":"A@f","attempts":0}`)
	select {
	case <-heard:
	case <-time.After(10 * time.Second):
		t.Error("nobody was woken")
	}
}

func TestTimesThatNoRightClockWroteAreAWarning(t *testing.T) {
	t.Parallel()
	const longer, created = "or its retry_after is longer", "says that it was created"
	for name, tt := range map[string]struct {
		reserved int64   // s from now
		fraction float64 // of a second: a lease of ours
		created  int64   // s from now
		never    bool    // retry_after
		want     string
	}{
		"right":                     {reserved: 90},
		"about right":               {reserved: 92, created: 2},
		"ahead":                     {reserved: 97, want: longer},
		"far ahead":                 {reserved: 3690, created: 3600, want: "more than retry_after, 1m30s"},
		"ours may be of any length": {reserved: 3600, fraction: 0.123},
		"no retry_after":            {reserved: 60, never: true, want: longer},
		"created later than now":    {reserved: 90, created: 60, want: created},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, Laravel, func(p *Policy) {
				if tt.never {
					p.RetryAfter = 0
				}
			})
			now := s.redis.Time(t.Context()).Val().Unix()
			s.redis.ZAdd(t.Context(), "queues:mail:reserved", redis.Z{Score: float64(now+tt.reserved) + tt.fraction, Member: "a"},
				redis.Z{Score: float64(now - 9), Member: "b"})
			s.redis.RPush(t.Context(), "queues:mail", `{"uuid":"u","displayName":"A","createdAt":`+strconv.FormatInt(now+tt.created, 10)+`}`)
			warnings, err := s.oddities(t.Context(), s.named("shop"))
			if err != nil || len(warnings) > 0 != (tt.want != "") || !strings.Contains(strings.Join(warnings, "\n"), tt.want) {
				t.Errorf("got %q, %v, want %q", warnings, err, tt.want)
			}
		})
	}
	t.Run("beside a key of another type", func(t *testing.T) {
		t.Parallel()
		s := open(t, Think3, nil)
		s.redis.Set(t.Context(), "{queues:mail}:reserved", "x", 0)
		if warnings, err := s.oddities(t.Context(), s.named("shop")); err != nil || len(warnings) > 0 {
			t.Errorf("got %q, %v", warnings, err)
		}
	})
}

func TestNamesAreFoundBesideALargeCacheThoughEachLookIsShort(t *testing.T) {
	t.Parallel()
	s := open(t, Laravel, nil)
	pipe := s.redis.Pipeline()
	for i := range 30_000 {
		pipe.Set(t.Context(), fmt.Sprint("cache:", i), "", 0)
	}
	pipe.RPush(t.Context(), "queues:bulk1", "{}")
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	look := func() ([]string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return s.Queues(ctx, s.ns)
	}
	for range 200 {
		if names, err := look(); err == nil {
			if fmt.Sprint(names) != "[bulk1 mail other]" {
				t.Errorf("names %v", names)
			}
			return
		}
	}
	t.Error("no look has ended")
}
