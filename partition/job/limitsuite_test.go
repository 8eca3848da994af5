package job_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/job"
)

// limits are rules for the queues of leasesAreLimited.
func limits(p *job.Policy) {
	p.Shards, p.Spread = 3, map[string]int{"wide": 3}
	p.Rules = []job.Rule{
		{Match: "video", Concurrency: 2},
		{Match: "mail", Concurrency: 1},
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

	b.publish("mail", "1", "2", "3", "4")
	b.same("one", payloads(b.claim(10, "mail")), []string{"1"})
	for _, change := range []struct {
		most int // 0: no limit
		want []string
	}{{2, []string{"2"}}, {0, []string{"3", "4"}}} {
		p := job.DefaultPolicy()
		limits(&p)
		if p.Rules[1].Concurrency = change.most; change.most == 0 {
			p.Rules = p.Rules[:1]
		}
		b.is("another limit", b.real.SetNamespaces(b.Context(), map[string]job.Policy{"mail": p}), nil)
		b.ns = b.store.Namespace("mail")
		b.same("what the new limit lets pass", payloads(b.claim(10, "mail")), change.want)
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
		back := backendtest.Open(t, backend.Config{URL: url})
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
	// All that the limit allows, taken by one that forgets it.
	all := &job.Claim{Namespace: p.Namespace, Queues: []string{"q"}, TTR: 500 * time.Millisecond, Count: most + 1}
	if first.Run(t.Context(), first.NewLane(), &job.Batch{Claims: []*job.Claim{all}}); len(all.Jobs) != most {
		t.Fatalf("%d jobs were claimed: %v", len(all.Jobs), all.Err)
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
	lease := "exact:{mail.0}:lease"
	redistest.Until(t, 5*time.Minute, "all jobs are done", func() bool {
		n := c.ZCard(t.Context(), lease).Val()
		if n > most {
			t.Errorf("%d leases", n)
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
}
