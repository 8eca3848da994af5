package job_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
)

// limits are rules for the queues of leasesAreLimited.
func limits(p *job.Policy) {
	p.Shards, p.Spread = 3, map[string]int{"wide": 3}
	p.Rules = []job.Rule{
		{Match: "video", Concurrency: 2},
		{Match: "mail", Concurrency: 1, ConcurrencyBy: "tenant"},
	}
}

func leasesAreLimited(b *bench) {
	b.open(limits)
	b.promote()
	b.publish("video", "1", "2", "3", "4")
	first := b.claim(10, "video")
	b.same("as many as the rule says", payloads(first), []string{"1", "2"})
	c := &job.Claim{Namespace: b.ns, Shard: b.ns.Shards("video")[0], Queues: []string{"video"}, TTR: time.Minute, Count: 1, ReportLeft: true}
	b.run(job.Batch{Claims: []*job.Claim{c}})
	b.same("held back, as if it were empty", []any{len(c.Jobs), c.Left[0], c.Held[0], c.More, c.Err}, []any{0, 0, int64(0), false, nil})
	b.ack(first[0])
	b.same("after an ack", payloads(b.claimFor(50*time.Millisecond, 10, "video")), []string{"3"})
	var again []job.Job
	b.until("a lease ends and another takes its slot", func() bool {
		again = b.claim(10, "video")
		return len(again) > 0
	})
	b.same("the next", payloads(again), []string{"4"})
	b.same("nack", b.settle(again[0], job.Nack, 0), job.Ready)
	b.same("after it", len(b.claim(10, "video")), 1)

	for i, tenant := range []string{"red", "red", "red", "blue"} {
		p := b.message("mail", fmt.Sprint(tenant, i))
		p.Messages[0].Attributes = []byte(fmt.Sprintf(`{"tenant":%q}`, tenant))
		b.store1(p)
	}
	each := b.claim(10, "mail")
	b.same("one of each tenant", payloads(each), []string{"red0", "blue3"})
	list, _, err := b.store.List(b.Context(), b.ns, job.List{Queue: "mail", State: job.Delayed, Limit: 10, Data: true})
	waiting := payloads(list)
	slices.Sort(waiting) // those of one ms have any order
	b.same("the others wait", []any{waiting, err}, []any{[]string{"red1", "red2"}, nil})
	waits, state, err := b.store.Get(b.Context(), b.ns, "mail", list[0].Ref)
	b.same("and say why", []any{list[0].Reason, waits.Reason, state, err}, []any{job.HeldBack, job.HeldBack, job.Delayed, nil})
	b.ack(each[0])
	b.same("the next of red", payloads(b.claim(10, "mail")), []string{"red1"})
	b.ack(each[1])
	b.same("none of blue", len(b.claim(10, "mail")), 0)

	for i := range 6 {
		p := b.message("mail", fmt.Sprint("red", i+3))
		p.Messages[0].Attributes = []byte(`{"tenant":"red"}`)
		b.store1(p)
	}
	b.same("all wait", len(b.claim(10, "mail")), 0)
	for _, change := range []struct {
		most int // 0: no limit
		want []string
	}{{3, []string{"red2", "red3"}}, {0, []string{"red4", "red5", "red6", "red7", "red8"}}} {
		p := job.DefaultPolicy()
		limits(&p)
		if p.Rules[1].Concurrency = change.most; change.most == 0 {
			p.Rules = p.Rules[:1]
		}
		b.is("another limit", b.real.SetNamespaces(b.Context(), map[string]job.Policy{"mail": p}), nil)
		b.ns = b.store.Namespace("mail")
		var passed []string
		b.until("those who waited get what it lets pass", func() bool {
			passed = append(passed, payloads(b.claim(10, "mail"))...)
			return len(passed) >= len(change.want)
		})
		slices.Sort(passed)
		b.same("of a limit", []any{change.most, passed}, []any{change.most, change.want})
	}
}

func TestALimitThatARestartRaisesLetsThosePassThatWait(t *testing.T) {
	t.Parallel()
	back, err := backend.Open(backend.Config{URL: "redis://" + redistest.Shared(t)}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = back.Close() })
	claimed := func(s *job.Store) (got []string) {
		c := &job.Claim{Namespace: s.Namespace("mail"), Queues: []string{"mail"}, TTR: time.Hour, Count: 10}
		s.Run(t.Context(), s.NewLane(), &job.Batch{Claims: []*job.Claim{c}})
		return payloads(c.Jobs)
	}
	for _, most := range []int{1, 3} {
		p := job.DefaultPolicy()
		p.Rules = []job.Rule{{Match: "mail", Concurrency: most, ConcurrencyBy: "tenant"}}
		s, err := job.Open(job.Config{Prefix: "raised", Volatile: true, Namespaces: map[string]job.Policy{"mail": p}}, back, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if most == 1 {
			p := &job.Publish{Namespace: s.Namespace("mail"), Queue: "mail", Tries: 3}
			for i := range 5 {
				p.Messages = append(p.Messages, job.Message{Payload: []byte(fmt.Sprint(i)), Attributes: []byte(`{"tenant":"red"}`)})
			}
			if s.Run(t.Context(), s.NewLane(), &job.Batch{Publishes: []*job.Publish{p}}); p.Err != nil || len(claimed(s)) != 1 {
				t.Fatal(p.Err)
			}
			continue
		}
		promoter := job.NewPromoter(s)
		if err := promoter.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		redistest.Until(t, 20*time.Second, "two more are claimed", func() bool {
			got = append(got, claimed(s)...)
			return len(got) >= 2
		})
		if err := promoter.Stop(context.Background()); err != nil || !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

// Three stores stand for processes, some of which end without a word. The leases that the shard has are never more than
// the limit, and all work is done.
func TestALimitIsExactOverProcessesThatDie(t *testing.T) {
	t.Parallel()
	const most = 5
	jobs := int64(300)
	if testing.Short() {
		jobs = 60
	}
	server := redistest.Start(t)
	url := server.URL()
	open := func() *job.Store {
		back, err := backend.Open(backend.Config{URL: url}, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = back.Close() })
		p := job.DefaultPolicy()
		p.Rules = []job.Rule{{Match: "*", Concurrency: most}}
		s, err := job.Open(job.Config{Prefix: "exact", Volatile: true, Namespaces: map[string]job.Policy{"mail": p}}, back, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		promoter := job.NewPromoter(s)
		if err := promoter.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = promoter.Stop(context.Background()) })
		return s
	}
	var done atomic.Int64
	var workers sync.WaitGroup
	work := func(ctx context.Context, s *job.Store) {
		lane, ns := s.NewLane(), s.Namespace("mail")
		for ctx.Err() == nil && done.Load() < jobs {
			c := &job.Claim{Namespace: ns, Queues: []string{"q"}, TTR: 500 * time.Millisecond, Count: 1 + rand.IntN(3)}
			s.Run(context.Background(), lane, &job.Batch{Claims: []*job.Claim{c}})
			for _, j := range c.Jobs {
				switch rand.IntN(8) {
				case 0: // it is forgotten, so its lease ends
				case 1:
					s.Run(context.Background(), lane, &job.Batch{Settles: []*job.Settle{{Namespace: ns, Queue: "q", Ref: j.Ref, Verb: job.Nack}}})
				default:
					a := &job.Ack{Namespace: ns, Queue: "q", Ref: j.Ref}
					if s.Run(context.Background(), lane, &job.Batch{Acks: []*job.Ack{a}}); a.Acked {
						done.Add(1)
					}
				}
			}
		}
	}
	first := open()
	p := &job.Publish{Namespace: first.Namespace("mail"), Queue: "q", Tries: job.MaxTries}
	for range jobs {
		p.Messages = append(p.Messages, job.Message{Payload: []byte("x")})
	}
	if first.Run(t.Context(), first.NewLane(), &job.Batch{Publishes: []*job.Publish{p}}); p.Err != nil {
		t.Fatal(p.Err)
	}
	alive := []context.CancelFunc{}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		alive = append(alive, cancel)
		s := open()
		for range 2 {
			workers.Go(func() { work(ctx, s) })
		}
	}
	c := server.Client()
	lease, full := "exact:{mail.0}:lease", 0
	redistest.Until(t, 5*time.Minute, "all jobs are done", func() bool {
		n := c.ZCard(t.Context(), lease).Val()
		if n > most {
			t.Errorf("%d leases", n)
		}
		if n == most {
			full++
		}
		if done.Load() > jobs/3 && alive[0] != nil {
			alive[0]() // it dies, and another begins
			alive[0] = nil
			s := open()
			workers.Go(func() { work(t.Context(), s) })
		}
		return done.Load() == jobs || t.Failed()
	})
	workers.Wait()
	if full == 0 {
		t.Error("the limit was never used up")
	}
}
