package php

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

// How Wakes waits.
const (
	maxBlocked  = 16                     // queues of which each has a command that waits in Redis
	blockFor    = time.Second            // how long it waits, and how often the due times are looked at
	pollEvery   = 250 * time.Millisecond // the pause between two looks at the queues beyond those
	maxPolled   = 1000                   // queues that one look looks at
	minRest     = 2 * time.Millisecond   // after a wake, doubled while the queue stays as it is
	wakeTimeout = 5 * time.Second

	restartLook = 2 * time.Second // how often PHP's restart signal is read while nobody claims
)

// Wakes tells this process when queues have ready jobs. PHP tells nobody that it pushed, so one
// command a queue waits in Redis: BLMOVE of the head of the list onto itself. It changes nothing and
// takes nothing, so nothing is lost with this process. Any number of claims wait behind it. Once a
// second, and when the first delayed payload or the first lapse is due, claims are let ask, which
// is what makes those ready. Claims also end when the application's workers are to restart.
type Wakes struct {
	*lifecycle.Loop
	store   *Store
	on      func(job.WakeEvent)
	change  lifecycle.Signal
	client  redis.UniversalClient // of its own: its commands wait
	outage  backend.OutageLog
	telling sync.Mutex // one event at a time

	mu     sync.Mutex
	wanted map[target]*wanted
}

// wanted is a queue that somebody wants wakes of.
type wanted struct {
	wants int
	told  bool               // that it is heard from now on
	end   context.CancelFunc // of the goroutine that waits; nil: it is polled
	until time.Time          // of the rest, where it is polled
}

// Listen makes the wakes of the store.
func (s *Store) Listen(on func(job.WakeEvent)) job.Listener { return newWakes(s, on) }

// newWakes makes the wakes of a store. on is called for each event, one at a time, without a lock;
// it may call Want and Unwant.
func newWakes(s *Store, on func(job.WakeEvent)) *Wakes {
	w := &Wakes{
		store:  s,
		on:     on,
		change: lifecycle.NewSignal(),
		wanted: map[target]*wanted{},
		outage: backend.OutageLog{
			Log:   s.log,
			Level: zap.WarnLevel,
			Began: "PHP's queues are not heard: claims that wait ask at intervals",
			Ended: "PHP's queues are heard again",
		},
	}
	w.Loop = lifecycle.New("wakes of PHP's queues", nil, w.run)
	return w
}

// Want has the queue heard. Each Want has its Unwant.
func (w *Wakes) Want(ns *job.Namespace, _ int, queue string) {
	w.mu.Lock()
	t := target{ns.Name, queue}
	x := w.wanted[t]
	if x == nil {
		x = &wanted{}
		w.wanted[t] = x
	}
	x.wants++
	x.told = false
	w.mu.Unlock()
	w.change.Ring()
}

// Unwant ends a Want.
func (w *Wakes) Unwant(ns *job.Namespace, _ int, queue string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := target{ns.Name, queue}
	x := w.wanted[t]
	if x == nil {
		return
	}
	if x.wants--; x.wants == 0 {
		delete(w.wanted, t)
		if x.end != nil {
			x.end()
		}
	}
}

func (w *Wakes) tell(kind job.WakeKind, t target) {
	w.telling.Lock()
	defer w.telling.Unlock()
	w.on(job.WakeEvent{Kind: kind, Namespace: t.namespace, Queue: t.queue, Count: 1})
}

// run gives the queues that are wanted a goroutine each, up to maxBlocked, and polls the others.
func (w *Wakes) run(ctx context.Context) {
	w.client = w.store.backend.NewClient()
	defer func() { _ = w.client.Close() }()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	blocked := make(chan struct{}, maxBlocked)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	r := restarts{told: map[string]int64{}}
	for {
		var fresh []target
		w.mu.Lock()
		for t, x := range w.wanted {
			if !x.told {
				x.told = true
				fresh = append(fresh, t)
			}
			if x.end != nil || w.polls(t) {
				continue
			}
			select {
			case blocked <- struct{}{}:
				var of context.Context
				of, x.end = context.WithCancel(ctx)
				waiting.Go(func() {
					defer func() { <-blocked }()
					w.wait(of, t, x)
				})
			default: // polled until another ends
			}
		}
		w.mu.Unlock()
		for _, t := range fresh {
			w.tell(job.WakeSubscribed, t)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.change:
		case <-tick.C:
			w.poll(ctx)
			w.restarts(ctx, &r)
		}
	}
}

// restarts is what was told of the restart signals of namespaces.
type restarts struct {
	looked time.Time
	told   map[string]int64 // the changes of each
}

// restarts tells of each change of a signal in the namespaces of which a queue is wanted. The first
// look may tell one of long ago: a claim that ends too early asks again.
func (w *Wakes) restarts(ctx context.Context, r *restarts) {
	wanted := map[string]bool{}
	w.mu.Lock()
	for t := range w.wanted {
		wanted[t.namespace] = true
	}
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	look := time.Since(r.looked) >= restartLook
	if look {
		r.looked = time.Now()
	}
	for name := range wanted {
		n := w.store.named(name)
		if n == nil {
			continue
		}
		if look {
			w.store.RestartSignal(ctx, name)
		}
		if changes := n.restart.changes.Load(); changes != r.told[name] {
			r.told[name] = changes
			w.tell(job.WakeRestart, target{namespace: name})
		}
	}
}

// polls reports whether a queue is polled by its configuration.
func (w *Wakes) polls(t target) bool {
	n := w.store.named(t.namespace)
	return n == nil || n.Poll > 0 || n.polled.Load()
}

// wait waits for one queue until its context ends.
func (w *Wakes) wait(ctx context.Context, t target, x *wanted) {
	failing := false
	before, rest := "", minRest // what was ready last, and the pause after it
	defer func() {
		if failing {
			w.outage.End()
		}
		w.mu.Lock()
		x.end()
		x.end = nil
		w.mu.Unlock()
		w.change.Ring() // another may have its place
	}()
	for ctx.Err() == nil {
		n := w.store.named(t.namespace)
		if n == nil {
			return
		}
		head, has, err := w.look(ctx, n, t.queue, blockFor)
		switch {
		case ctx.Err() != nil:
			return
		case unusable(err): // before Redis 6.2, or the user may not run it
			n.polled.Store(true)
			return
		case err != nil:
			if !failing {
				failing = true
				w.outage.Begin(zap.String("namespace", t.namespace), zap.Error(err))
			}
			w.pause(ctx, blockFor)
			continue
		case failing:
			failing = false
			w.outage.End()
		}
		if !has {
			before = ""
			continue
		}
		if head == before { // nobody takes it
			rest = min(2*rest, pollEvery)
		} else {
			before, rest = head, minRest
		}
		w.tell(job.WakeHeard, t)
		w.pause(ctx, rest)
	}
}

func (w *Wakes) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// unusable reports whether the server has no BLMOVE for this user.
func unusable(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	text := strings.ToLower(answer.Error())
	return strings.HasPrefix(text, "err unknown command") || strings.HasPrefix(text,
		"noperm") && strings.Contains(text, "blmove")
}

// look waits until a queue has a ready job, which is its head, or one that a claim makes ready. false:
// not so far.
func (w *Wakes) look(ctx context.Context, n *namespace, queue string,
	most time.Duration) (head string, has bool, err error) {
	k := n.keys(queue)
	bounded, cancel := context.WithTimeout(ctx, most+wakeTimeout)
	defer cancel()
	pipe := w.client.Pipeline()
	var heads []*redis.ZSliceCmd
	sets := n.dueSets(k)
	for _, set := range sets {
		heads = append(heads, pipe.ZRangeWithScores(bounded, set.key, 0, 0))
	}
	if _, err := pipe.Exec(bounded); err != nil {
		return "", false, err
	}
	now, err := w.store.backend.KnownTime(bounded)
	if err != nil {
		return "", false, err
	}
	for i, first := range heads {
		if len(first.Val()) == 0 {
			continue
		}
		left := time.Duration(int64(first.Val()[0].Score*sets[i].ms)-now) * time.Millisecond
		if left <= 0 {
			return fmt.Sprint(first.Val()[0]), true, nil
		}
		most = min(most, left)
	}
	head, err = w.client.BLMove(bounded, k.ready, k.ready, "LEFT", "LEFT", max(most,
		10*time.Millisecond)).Result()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	return head, err == nil, err
}

// dueSet is a sorted set of times, each of which is ms milliseconds.
type dueSet struct {
	key string
	ms  float64
}

// dueSets are what a claim makes ready once it is due: delayed payloads, and what lapsed. Where
// PHP's reservations never lapse, only our leases do.
func (n *namespace) dueSets(k keys) [2]dueSet {
	if n.RetryAfter == 0 {
		return [2]dueSet{{k.delayed, 1000}, {k.leases, 1}}
	}
	return [2]dueSet{{k.delayed, 1000}, {k.reserved, 1000}}
}

// poll looks at the queues that have no goroutine, in one round trip.
func (w *Wakes) poll(ctx context.Context) {
	type polled struct {
		target
		x     *wanted
		ready *redis.IntCmd
		due   [2]*redis.IntCmd
	}
	var all []*polled
	now := time.Now()
	w.mu.Lock()
	for t, x := range w.wanted {
		if x.end == nil && now.After(x.until) && len(all) < maxPolled { // in any order, so each has its turn
			all = append(all, &polled{target: t, x: x})
		}
	}
	w.mu.Unlock()
	pipe := w.store.backend.Background.Pipeline()
	clock, known := w.store.Now()
	if !known {
		clock = now.UnixMilli()
	}
	for _, p := range all {
		n := w.store.named(p.namespace)
		if n == nil {
			continue
		}
		k := n.keys(p.queue)
		p.ready = pipe.LLen(ctx, k.ready)
		p.x.until = now.Add(n.Poll - pollEvery/2)
		for i, set := range n.dueSets(k) {
			p.due[i] = pipe.ZCount(ctx, set.key, "-inf",
				strconv.FormatFloat(float64(clock)/set.ms, 'f', 3, 64))
		}
	}
	if pipe.Len() == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	if _, err := pipe.Exec(bounded); err != nil {
		w.store.backend.CountError(backend.Classify(err))
	}
	for _, p := range all {
		if p.ready != nil && p.ready.Val()+p.due[0].Val()+p.due[1].Val() > 0 {
			w.tell(job.WakeHeard, p.target)
		}
	}
}
