package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/php"
)

// phpGroups are the rows of PHP's queues.
var phpGroups = []group{
	{"PHP", func() []*row {
		return []*row{
			{Key: "php", Measure: "Redis CPU µs a job of PHP's, claimed and acked singly ÷ by the commands of think-queue's worker", Goal: 0.8, AtMost: true,
				Note: "2,000 jobs of 200 bytes; settle and the next claim are one round trip; the worker's: GET, twice WATCH, ZRANGEBYSCORE, UNWATCH, then LPOP, ZADD, ZREM, one after the other"},
			{Key: "php", Measure: "the same, 8 a claim", Goal: 0.4, AtMost: true},
			{Key: "php", Measure: "push to wake of an idle queue, p99", Unit: "ms",
				Goal: 10, AtMost: true, Note: "300 pushes by RPUSH, one at a time"},
			{Key: "php", Measure: "Redis commands/s of an idle queue with a claim that waits", Unit: "/s", Goal: 4, AtMost: true},
			{Key: "php", Measure: "Redis CPU of 1,000 queues found by a pattern and summed up every 5 s, of a core", Unit: "%", Goal: 3, AtMost: true},
		}
	}, phpRows},
}

const (
	phpJobs   = 2000
	phpPushes = 300
	phpQueues = 1000
	phpIdle   = 10 * time.Second
)

// phpRig is a Redis with PHP's queues, and the store over them.
type phpRig struct {
	*setup
	store *php.Store
	ns    *job.Namespace
	lane  *job.Lane
}

func phpRows(ctx context.Context, m *measurement) error {
	r, err := newSetup(ctx, m.settings, false)
	if err != nil {
		return err
	}
	defer r.close()
	b, err := backend.Open(backend.Config{URL: r.redisURL}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }() // what it did was answered
	policy := php.DefaultPolicy(php.Think3)
	policy.Rules = []job.Rule{{Match: "*"}}
	store, err := php.Open(php.Config{Prefix: "sw", Namespaces: map[string]php.Policy{"shop": policy}}, b, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		return err
	}
	if _, err := store.Check(ctx); err != nil {
		return err
	}
	p := &phpRig{r, store, store.Namespace("shop"), store.NewLane()}
	worker := func() (float64, error) { return p.measured(ctx, m.payload, p.work) }
	for i, size := range []int{1, 8} {
		ours := func() (float64, error) {
			return p.measured(ctx, m.payload,
				func(ctx context.Context) error { return p.claim(ctx, size) })
		}
		sides := []func() (float64, error){ours, worker}
		var cpu [2]float64
		for turn := range 3 { // the first warms both up; then each comes first once
			for s := range sides {
				s = (s + turn) % 2
				us, err := sides[s]()
				if err != nil {
					return err
				}
				if turn > 0 {
					cpu[s] += us / 2
				}
			}
		}
		m.rows[i].add(cpu[0], cpu[1], nil)
	}
	if err := p.waits(ctx, m); err != nil {
		return err
	}
	return p.many(ctx, m)
}

const phpBase = "{queues:default}"

// measured pushes jobs, and has them done: the µs of Redis's CPU each.
func (p *phpRig) measured(ctx context.Context, size int,
	do func(context.Context) error) (us float64, err error) {
	pipe := p.client.Pipeline()
	for i := range phpJobs {
		pipe.RPush(ctx, phpBase, fmt.Sprintf(`{"job":"App\\Jobs\\Plain@fire","maxTries":null,"timeout":null,"data":"%0*d","id":"%032d","attempts":0}`, size-130, i, i))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, err
	}
	_, before, err := p.spent(ctx)
	if err != nil {
		return 0, err
	}
	if err := do(ctx); err != nil {
		return 0, err
	}
	_, after, err := p.spent(ctx)
	if n := p.client.Exists(ctx, phpBase, phpBase+":reserved").Val(); err == nil && n != 0 {
		err = errors.New("jobs of PHP's are left")
	}
	return (after - before) * 1e6 / phpJobs, err
}

// claim does the jobs by claims of so many. What a claim got is acked with the next one.
func (p *phpRig) claim(ctx context.Context, size int) error {
	for done, acks := 0, []*job.Ack(nil); done < phpJobs || len(acks) > 0; {
		c := &job.Claim{Namespace: p.ns, Queues: []string{"default"}, TTR: time.Minute, Count: size}
		p.store.Run(ctx, p.lane, &job.Batch{Acks: acks, Claims: []*job.Claim{c}})
		for _, a := range acks {
			if a.Err != nil || !a.Acked {
				return fmt.Errorf("not acked: %w", a.Err)
			}
		}
		if c.Err != nil || len(c.Jobs) == 0 && done < phpJobs {
			return fmt.Errorf("claimed %d: %w", done, c.Err)
		}
		acks = acks[:0]
		for i := range c.Jobs {
			acks = append(acks, &job.Ack{Namespace: p.ns, Queue: "default", Ref: c.Jobs[i].Ref})
		}
		done += len(c.Jobs)
	}
	return nil
}

// work does the jobs by the commands of think-queue's worker.
func (p *phpRig) work(ctx context.Context) error {
	c := p.client.Conn()
	defer func() { _ = c.Close() }()
	for range phpJobs {
		if err := c.Get(ctx, "think:queue:restart").Err(); !errors.Is(err, redis.Nil) {
			return err
		}
		for _, set := range []string{":delayed", ":reserved"} {
			for _, command := range [][]any{{"watch", phpBase + set}, {"zrangebyscore",
				phpBase + set, "-inf", time.Now().Unix()}, {"unwatch"}} {
				if err := c.Do(ctx, command...).Err(); err != nil {
					return err
				}
			}
		}
		payload, err := c.LPop(ctx, phpBase).Result()
		if err != nil {
			return err
		}
		reserved := payload[:len(payload)-2] + "1}"
		if err := c.ZAdd(ctx, phpBase+":reserved", redis.Z{Score: float64(time.Now().Unix() + 60), Member: reserved}).Err(); err != nil {
			return err
		}
		if err := c.ZRem(ctx, phpBase+":reserved", reserved).Err(); err != nil {
			return err
		}
	}
	return nil
}

// waits measures a claim that waits.
func (p *phpRig) waits(ctx context.Context, m *measurement) error {
	heard := make(chan job.WakeEvent, 1024)
	w := php.NewWakes(p.store, func(e job.WakeEvent) { heard <- e })
	if err := w.Start(ctx); err != nil {
		return err
	}
	defer func() { _ = w.Stop(context.WithoutCancel(ctx)) }()
	w.Want(p.ns, 0, "default")
	rig.Sleep(ctx, idleSettle)
	idle, err := p.commandsNow(ctx, phpIdle)
	if err != nil {
		return err
	}
	var took []time.Duration
	for i := range phpPushes {
		rig.Sleep(ctx, 5*time.Millisecond)
		for len(heard) > 0 {
			<-heard
		}
		began := time.Now()
		if err := p.client.RPush(ctx, phpBase, fmt.Sprintf(`{"id":"%d"}`, i)).Err(); err != nil {
			return err
		}
		select {
		case <-heard:
			took = append(took, time.Since(began))
		case <-time.After(drainTimeout):
			return errors.New("a push wakes nobody")
		}
		if err := p.client.LPop(ctx, phpBase).Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	slices.Sort(took)
	m.rows[2].add(milliseconds(took[len(took)*99/100]), 0, nil)
	m.rows[3].add(idle, 0, nil)
	return nil
}

// many measures a thousand queues that nobody but a reader of sums looks at.
func (p *phpRig) many(ctx context.Context, m *measurement) error {
	for i := range phpQueues {
		if err := p.client.RPush(ctx, fmt.Sprintf("{queues:q%d}", i), `{"job":"A@f","attempts":0}`).Err(); err != nil {
			return err
		}
	}
	_, before, err := p.spent(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	for time.Since(began) < phpIdle && ctx.Err() == nil {
		l, err := p.store.Ledger(ctx, p.ns)
		if err != nil || l.Ready != phpQueues {
			return fmt.Errorf("%d of %d jobs are summed up: %w", l.Ready, phpQueues, err)
		}
		rig.Sleep(ctx, time.Second)
	}
	_, after, err := p.spent(ctx)
	m.rows[4].add((after-before)/time.Since(began).Seconds()*100, 0, nil)
	return err
}
