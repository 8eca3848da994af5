package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/spillway-io/spillway/bench/chaos/check"
	"github.com/spillway-io/spillway/bench/rig"
	spillway "github.com/spillway-io/spillway/ingest/client"
)

const (
	clockNamespace = "clock"
	schedules      = 200
	clockWorkers   = 4
	clockPause     = 60 * time.Millisecond // between two changes of schedules
	clockPatience  = 20 * time.Second      // of one change, which is repeated until it is answered
)

var clockQueues = []string{"hourly", "reports", "cleanup"}

// scheduleLoad is schedules of a second or a few, their users and their workers.
type scheduleLoad struct {
	roll    *rand.Rand
	servers []*spillway.Queues
	every   []time.Duration
	floor   int // of ticks that fire
	put     []check.PutSchedule

	mu   sync.Mutex
	jobs []check.ScheduledJob
}

func newScheduleLoad(r *setup) *scheduleLoad {
	l := &scheduleLoad{roll: rand.New(rand.NewPCG(r.plan.seed, 3000)), floor: 10 * r.plan.weighed(), every: make([]time.Duration, schedules)}
	for _, url := range r.ingests() {
		c, err := spillway.NewQueues(url, spillway.QueuesConfig{Namespace: clockNamespace, Timeout: requestTimeout, Attempts: 1})
		if err != nil {
			panic(err) // the URL is ours
		}
		l.servers = append(l.servers, c)
	}
	return l
}

// of is the queue and the name of a schedule.
func of(i int) (queue, name string) { return clockQueues[i%len(clockQueues)], fmt.Sprintf("s%d", i) }

// run has schedules until loading ends and a while longer, pauses them, and works off what is left, at most for quiet.
func (l *scheduleLoad) run(ctx, loading context.Context, quiet time.Duration) *check.Schedules {
	working, stop := context.WithCancel(ctx)
	defer stop()
	var work sync.WaitGroup
	for i := range clockWorkers {
		work.Go(func() { l.work(working, l.servers[i%len(l.servers)], i) })
	}
	for i := range schedules {
		if !l.make(loading, i) {
			break
		}
	}
	for loading.Err() == nil && len(l.put) > 0 {
		l.change(loading, l.roll.IntN(len(l.put)))
		rig.Sleep(loading, clockPause)
	}
	h := &check.Schedules{Put: l.put, Fired: l.floor}
	rig.Sleep(ctx, calmTime)
	for i := range l.put {
		l.try(ctx, func(ctx context.Context, s spillway.Schedules, queue, name string) error {
			return s.Resume(ctx, queue, name)
		}, i)
	}
	rig.Sleep(ctx, 2*time.Second) // what was paused is accounted for at the next tick
	h.Active = l.read(ctx)
	for i := range l.put {
		l.try(ctx, func(ctx context.Context, s spillway.Schedules, queue, name string) error {
			return s.Pause(ctx, queue, name)
		}, i)
	}
	limit, end := context.WithTimeout(ctx, quiet)
	defer end()
	for h.Left = 1; h.Left != 0 && rig.Sleep(limit, 300*time.Millisecond); {
		h.Left = l.left(limit)
	}
	stop()
	work.Wait()
	h.Paused, h.Jobs = l.read(ctx), l.jobs
	return h
}

// try repeats a call of a schedule, at another server each time, until it is answered. done: with yes.
func (l *scheduleLoad) try(ctx context.Context, call func(ctx context.Context, s spillway.Schedules, queue, name string) error, i int) (tries int, done bool) {
	queue, name := of(i)
	for end := time.Now().Add(clockPatience); ctx.Err() == nil && time.Now().Before(end); {
		tries++
		switch err := call(ctx, l.servers[l.roll.IntN(len(l.servers))].Schedules(), queue, name); {
		case err == nil:
			return tries, true
		case !errors.Is(err, spillway.ErrUnavailable) && !errors.Is(err, spillway.ErrUnknown):
			return tries, false
		}
		rig.Sleep(ctx, 50*time.Millisecond)
	}
	return tries, false
}

// make makes a schedule. Some catch up each tick that they missed, some none, some run one at a time.
func (l *scheduleLoad) make(ctx context.Context, i int) bool {
	l.every[i] = time.Duration(1+i%3) * time.Second
	queue, name := of(i)
	made := check.PutSchedule{Name: queue + "/" + name, Every: l.every[i]}
	var next []time.Time
	tries, done := l.try(ctx, func(ctx context.Context, s spillway.Schedules, queue, name string) (err error) {
		next, err = s.Put(ctx, queue, name, l.spec(i), spillway.PutOptions{})
		return err
	}, i)
	if done && tries == 1 && len(next) > 0 { // a further try may have found what the first made
		made.First = next[0]
	}
	l.put = append(l.put, made)
	return done
}

func (l *scheduleLoad) spec(i int) spillway.Spec {
	grace := []time.Duration{0, time.Second, time.Minute}[i/3%3]
	spec := spillway.Spec{Every: l.every[i], Tries: 1000, Missed: []string{"one", "all", "skip"}[i/9%3], Grace: &grace}
	if i%5 == 0 {
		spec.Overlap = []string{"skip", "buffer"}[i/5%2]
	}
	if i%7 == 0 {
		spec.Jitter = 300 * time.Millisecond
	}
	return spec
}

// change does with a schedule what its users do. The even ones keep their times, for the account.
func (l *scheduleLoad) change(ctx context.Context, i int) {
	var call func(ctx context.Context, s spillway.Schedules, queue, name string) error
	switch n := l.roll.IntN(10); {
	case n < 3 && i%2 == 1:
		l.put[i].Edited = true
		l.every[i] = time.Duration(1+l.roll.IntN(3)) * time.Second
		fallthrough
	case n < 4: // a deploy puts what is there
		call = func(ctx context.Context, s spillway.Schedules, queue, name string) error {
			_, err := s.Put(ctx, queue, name, l.spec(i), spillway.PutOptions{})
			return err
		}
	case n < 6:
		call = func(ctx context.Context, s spillway.Schedules, queue, name string) error {
			return s.Pause(ctx, queue, name)
		}
	case n < 9:
		call = func(ctx context.Context, s spillway.Schedules, queue, name string) error {
			return s.Resume(ctx, queue, name)
		}
	default:
		call = func(ctx context.Context, s spillway.Schedules, queue, name string) error {
			_, err := s.Trigger(ctx, queue, name, spillway.TriggerOptions{Force: true})
			return err
		}
	}
	queue, name := of(i)
	_ = call(ctx, l.servers[l.roll.IntN(len(l.servers))].Schedules(), queue, name) // it may have been done, or not
}

// work takes jobs and acks them, and notes each.
func (l *scheduleLoad) work(ctx context.Context, c *spillway.Queues, id int) {
	roll := rand.New(rand.NewPCG(uint64(id), 3001))
	for ctx.Err() == nil {
		jobs, err := c.Claim(ctx, clockQueues, spillway.ClaimOptions{Count: 1 + roll.IntN(20), TTR: ttr, Wait: 5 * time.Second})
		if err != nil {
			rig.Sleep(ctx, retryPause)
			continue
		}
		got := time.Now()
		for _, j := range jobs {
			tick, _ := time.Parse(time.RFC3339Nano, j.Attributes["tick"])
			l.mu.Lock()
			l.jobs = append(l.jobs, check.ScheduledJob{Schedule: j.Queue + "/" + j.Attributes["schedule"], ID: j.ID, Cause: j.Attributes["cause"],
				Tick: tick, Got: got})
			l.mu.Unlock()
			if roll.IntN(30) > 0 { // else it dies: the lease lapses
				_ = c.Ack(ctx, j)
			}
		}
	}
}

// left is how many jobs the queues have; 1, too, while nobody answers.
func (l *scheduleLoad) left(ctx context.Context) (n int64) {
	for _, queue := range clockQueues {
		c, err := l.servers[0].Counts(ctx, queue)
		if err != nil {
			return 1
		}
		n += c.Ready + c.Pending + c.Dead
	}
	return n
}

// read reads the accounts of all schedules.
func (l *scheduleLoad) read(ctx context.Context) map[string]check.ScheduleAccount {
	all := map[string]check.ScheduleAccount{}
	for i := range l.put {
		l.try(ctx, func(ctx context.Context, s spillway.Schedules, queue, name string) error {
			got, err := s.Get(ctx, queue, name)
			if err != nil {
				return err
			}
			t := got.Ticks
			a := check.ScheduleAccount{Total: t.Total, Fired: t.Fired, Missed: t.Missed, Overlapped: t.Overlapped, Paused: t.Paused,
				Unregistered: t.Unregistered, Superseded: t.Superseded, Waiting: t.Waiting}
			if len(got.Next) > 0 {
				a.Next = got.Next[0]
			}
			all[strings.Join([]string{queue, name}, "/")] = a
			return nil
		}, i)
	}
	return all
}
