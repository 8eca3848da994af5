package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/chaos/check"
	"github.com/spillway-io/spillway/bench/rig"
)

// result is a run and what the checks say of it.
type result struct {
	plan       *plan
	history    *check.History
	violations []check.Violation
	rejected   map[string]int // entries by the reason of their rejection
	dir        string         // logs; gone when all checks held
}

// chaos runs a plan and checks the result. The error is for a run that did not
// end; such a run proves nothing.
func chaos(ctx context.Context, s settings, p *plan, progress func(string, ...any)) (*result, error) {
	r, err := newSetup(ctx, s, p, progress)
	if err != nil {
		return nil, err
	}
	res, err := r.run(ctx)
	r.close()
	if err != nil {
		return nil, fmt.Errorf("%w; logs are in %s", err, r.dir)
	}
	if res.violations = check.Run(res.history); len(res.violations) == 0 {
		return res, os.RemoveAll(r.dir)
	}
	res.dir = r.dir
	return res, nil
}

func (r *setup) run(ctx context.Context) (*result, error) {
	w := newObserver(r)
	defer func() { _ = w.client.Close() }()
	h := &check.History{
		Policy: check.Policy{Capacity: r.plan.capacity, MaxAge: r.plan.maxAge, Lease: lease, Forgets: r.plan.forgets(), Replicated: r.plan.cluster},
		Floor:  r.plan.floor(),
	}
	res := &result{plan: r.plan, history: h, rejected: map[string]int{}}

	// From before the first claim to after the last commit.
	alive, rest := context.WithCancel(ctx)
	defer rest()
	pauses := make(chan []check.Fault, 1)
	go func() { pauses <- watchPauses(alive) }()

	// Clients, observer and faults run side by side; clients stop when faults do.
	loading, stop := context.WithCancel(ctx)
	defer stop()
	var watching, clients sync.WaitGroup
	watching.Go(func() { w.run(loading) })
	watching.Go(func() {
		r.scrape(loading, r.names, func(s *server) { _ = s.look(loading) }) // it may be down or frozen
	})
	var uids atomic.Uint64
	all := make([]*producer, producers+len(sideNamespaces))
	for i := range all {
		to := bufferNamespace
		if i >= producers {
			to = sideNamespaces[i-producers]
		}
		all[i] = newProducer(i, to, r.plan, r.ingests(), &uids)
		clients.Go(func() { all[i].run(loading) })
	}
	load := newJobLoad(r)
	var jobsErr error
	var queues sync.WaitGroup
	clock := newScheduleLoad(r)
	queues.Go(func() { h.Schedules = clock.run(ctx, loading, r.settings.quiet) })
	queues.Go(func() { h.Jobs, jobsErr = load.run(ctx, loading, r.settings.quiet) })
	began := time.Now()
	h.Faults = r.inject(ctx, began) // on a busy machine they take longer than planned
	rig.Sleep(ctx, time.Until(began.Add(r.plan.duration)))
	stop()
	clients.Wait()
	watching.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, p := range all[:producers] {
		h.Sent = append(h.Sent, p.history...)
		for reason, n := range p.reasons {
			res.rejected[reason] += n
		}
	}

	if err := r.drain(ctx, w); err != nil {
		return nil, err
	}
	if queues.Wait(); jobsErr != nil {
		return nil, jobsErr
	}
	h.Jobs.Floor, h.Jobs.Operated, h.Jobs.Paused = r.plan.jobsFloor(), operatedQueue, r.queuePauses
	h.Jobs.Limits = map[string]int64{}
	for _, l := range limits {
		h.Jobs.Limits[l.queue] = l.most
	}
	for _, name := range append([]string{bufferNamespace, queueNamespace, clockNamespace}, sideNamespaces...) {
		n, err := r.namespace(ctx, name)
		if err != nil {
			return nil, err
		}
		h.All = append(h.All, n)
	}
	h.Ended = time.Now()
	rest()
	h.Faults = append(h.Faults, <-pauses...)
	h.Posts, h.Pauses = r.sink.close(), r.pauses
	for i := range sideNamespaces {
		n := &h.All[len(h.All)-len(sideNamespaces)+i]
		n.Once = n.Name == onceNamespace
		n.Sent, n.Posts = all[producers+i].history, values(r.sink.sides[n.Name])
	}
	h.Samples = w.samples
	if err := r.account(ctx, w, &h.Final); err != nil {
		return nil, err
	}
	patience, over := context.WithTimeout(ctx, r.settings.settle)
	defer over()
	for _, name := range r.names {
		if err := r.servers[name].settle(ctx, patience); err != nil {
			return nil, err
		}
		h.Processes = append(h.Processes, r.servers[name].history()...)
	}
	return res, nil
}

// drain waits until nothing is buffered and nothing more is accepted, at most
// for settings.quiet. The checks then say what was left.
func (r *setup) drain(ctx context.Context, w *observer) error {
	ctx, cancel := context.WithTimeout(ctx, r.settings.quiet)
	defer cancel()
	before := int64(-1)
	for {
		held, accepted, err := w.buffered(ctx)
		if err == nil && held == 0 && accepted == before {
			return nil
		}
		before = accepted
		if !rig.Sleep(ctx, 300*time.Millisecond) {
			if err != nil {
				return fmt.Errorf("await an empty buffer: %w", err)
			}
			return nil
		}
	}
}

// account reads what the store says in the end: its ledger, with an audit, by
// way of a server, its dead letters and traces of partitions directly.
func (r *setup) account(ctx context.Context, w *observer, f *check.Final) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	a, err := bench.ReadAccount(ctx, "http://"+r.servers[r.names[0]].admin, "default", true)
	if err != nil {
		return err
	}
	f.Ledger, f.Residual = a.Ledger, *a.Residual
	f.DeadLetters, f.DeadEvicted, f.Reclaimed = a.DeadLetters, a.DeadEvicted, a.Reclaimed
	if f.Dead, err = w.dead(ctx); err != nil {
		return err
	}
	f.Leftover, err = w.leftover(ctx)
	return err
}

// namespace waits until nothing is buffered in a namespace, at most for settings.quiet. It
// counts what the lists and hashes hold then, whatever their names are.
func (r *setup) namespace(ctx context.Context, name string) (check.Namespace, error) {
	n := check.Namespace{Name: name}
	patience, over := context.WithTimeout(ctx, r.settings.quiet)
	defer over()
	for {
		text, err := bench.Get(ctx, "http://"+r.servers[r.names[0]].admin+"/api/v1/namespaces/"+name)
		if err == nil {
			err = json.Unmarshal([]byte(gjson.GetBytes(text, "ledger").Raw), &n.Ledger)
		}
		if err != nil && rig.Sleep(patience, 300*time.Millisecond) {
			continue // its store may have a master that is new
		}
		if err != nil {
			return n, err
		}
		if n.Ledger["buffered"] == 0 || !rig.Sleep(patience, 300*time.Millisecond) {
			break
		}
	}
	keys, err := r.keys(ctx, "sw:{"+name+".*")
	for _, key := range keys {
		_, rest, _ := strings.Cut(key, "}:")
		switch kind, _, _ := strings.Cut(rest, ":"); kind {
		case "q":
			n.Counted += r.store.LLen(ctx, key).Val()
		case "j":
			n.Counted += r.store.HLen(ctx, key).Val()
		}
	}
	return n, err
}

// weighed are the seconds of the run that count for floors. In a cluster, a process takes nothing before
// it has found all masters, and what is stored while a replica is away has an unknown outcome.
func (p *plan) weighed() int {
	seconds := int(p.duration / time.Second)
	if p.cluster {
		seconds /= 10
	}
	return seconds
}

// floor is what a run of this length reaches several times over on a machine
// that is busy with something else.
func (p *plan) floor() check.Floor {
	seconds := p.weighed()
	return check.Floor{Acks: 20 * seconds, Taken: 5 * seconds, Unknowns: 1, Faults: len(p.faults) * 9 / 10}
}
