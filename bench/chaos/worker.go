package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/bench/chaos/check"
	"github.com/spillway-io/spillway/bench/rig"
)

const (
	workers    = 8
	ttr        = 2 * time.Second
	longPoll   = 20 * time.Second // so that none ends by chance while a job should wake it
	settleTry  = 4                // of a settlement whose outcome is open
	retryPause = 50 * time.Millisecond
)

// A worker claims jobs and does with them what workers do: mostly it acks them.
type worker struct {
	*jobClient
	calm       *atomic.Bool // nothing is published any more: ack all
	deliveries []check.Delivery
	settled    []check.Settled
	polls      []check.Poll
}

func newWorker(id int, p *plan, targets []string, calm *atomic.Bool) *worker {
	return &worker{jobClient: newJobClient(p, targets, 2000+uint64(id), longPoll+requestTimeout), calm: calm}
}

// run works until ctx ends.
func (w *worker) run(ctx context.Context) {
	defer w.client.CloseIdleConnections()
	for ctx.Err() == nil {
		w.claim(ctx)
	}
}

// claim is one poll and the work that it brings.
func (w *worker) claim(ctx context.Context) {
	queues := slices.Clone(w.plan.queues)
	w.roll.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
	if !w.calm.Load() { // then all of them see to what is left
		queues = queues[:1+w.roll.IntN(len(queues))]
	}
	query := url.Values{"ttr": {ttr.String()}, "count": {fmt.Sprint(1 + w.roll.IntN(5))}, "wait": {longPoll.String()}}
	limit := longPoll + requestTimeout
	if w.roll.IntN(8) == 0 && !w.calm.Load() {
		limit = ms(w.roll, 1, 300) // then it hangs up
	}
	patience, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	a, err := w.do(w.request(strings.Join(queues, ",")+"/claim", query, nil).WithContext(patience))
	end := time.Now()
	w.polls = append(w.polls, check.Poll{Queues: queues, Start: start, End: end})
	if err != nil {
		rig.Sleep(ctx, retryPause)
		return
	}
	for _, j := range a.Jobs {
		d := check.Delivery{
			ID: j.ID, Queue: j.Queue, Attempt: j.Attempt, Tries: j.Tries,
			Asked: start, Got: end, Claimed: time.UnixMilli(j.Deadline).Add(-ttr), Data: check.ParsePayload(j.Data),
		}
		w.deliveries = append(w.deliveries, d)
		w.work(d)
	}
}

// work settles a job, or leaves it.
func (w *worker) work(d check.Delivery) {
	n := w.roll.IntN(100)
	if w.calm.Load() {
		n = 99
	}
	switch {
	case n < 5: // it dies: the lease lapses
	case n < 13:
		w.settle(d, "nack", w.roll.IntN(2)*w.roll.IntN(800))
	case n < 16:
		w.settle(d, "bury", 0)
	case n < 18:
		w.settle(d, "requeue", 0)
	case n < 22:
		w.settle(d, "touch", int(ttr/time.Millisecond))
		w.settle(d, "ack", 0)
	case n < 26:
		w.settle(d, "ack", 0)
		w.settle(d, "ack", 0)
	default:
		w.settle(d, "ack", 0)
	}
}

// settle says one thing of a job, again while the outcome is open.
func (w *worker) settle(d check.Delivery, verb string, after int) {
	request := map[string]any{"id": d.ID, "attempt": d.Attempt, "do": verb, "ms": after}
	if verb == "requeue" {
		// The next holder has the same attempt: without the deadline a repeat would take the job from it.
		request["deadline_ms"] = d.Claimed.Add(ttr).UnixMilli()
	}
	line, err := json.Marshal(request)
	if err != nil {
		panic(err) // of strings and numbers
	}
	s := check.Settled{UID: d.Data.UID, Attempt: d.Attempt, Do: verb}
	open := false
	for range settleTry {
		a, err := w.do(w.request(d.Queue+"/settle", nil, line))
		if s.End = time.Now(); err == nil && len(a.Results) == 1 && a.Results[0].State != "" {
			s.State = a.Results[0].State
			break
		}
		open = true
		time.Sleep(retryPause)
	}
	if open && s.State == "gone" {
		s.State = "" // an earlier try may have done it
	}
	w.settled = append(w.settled, s)
}
