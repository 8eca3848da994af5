package jobs

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// maxReturn is how long jobs are tried to be given back. Then their lease ends it.
const maxReturn = 10 * time.Minute

// GiveBack puts claimed jobs back to the heads of their queues, as if they had not been
// claimed. It does not wait. While the store does not answer, it tries again.
func (e *Engine) GiveBack(ns *job.Namespace, jobs []job.Job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(jobs) == 0 {
		return
	}
	if e.closed {
		e.metrics.notReturned.Add(float64(len(jobs)))
		return
	}
	settles := make([]job.Settle, len(jobs))
	refs := make([]*job.Settle, len(jobs))
	for i := range jobs {
		j := &jobs[i] // the script keeps their order at the head
		settles[i] = job.Settle{
			Namespace: ns,
			Queue:     j.Queue,
			Ref:       j.Ref,
			Attempt:   j.Attempt,
			Verb:      job.Requeue,
			Deadline:  j.At,
		}
		refs[i] = &settles[i]
	}
	e.returns.Add(1)
	e.giveBack(refs, time.Now(), 0)
}

// GiveBackLost has an Engine, or several, give back the jobs of an answer if the client goes
// away before it is sent whole. It drops the payloads, which the answer holds.
func GiveBackLost(x *ingest.Exchange, to interface {
	GiveBack(ns *job.Namespace, jobs []job.Job)
}, ns *job.Namespace, jobs []job.Job) {
	if len(jobs) == 0 {
		return
	}
	for i := range jobs {
		jobs[i].Payload, jobs[i].Attributes = nil, nil
	}
	x.OnLost(func() { to.GiveBack(ns, jobs) })
}

func (e *Engine) giveBack(settles []*job.Settle, since time.Time, attempt int) {
	w := &work{namespace: settles[0].Namespace.Name, jobs: len(settles)}
	w.batch.Settles = settles
	w.done = func() { e.gaveBack(settles, since, attempt) }
	e.laneOf(settles[0].Namespace, settles[0].Queue).put(w)
}

// gaveBack tries again what the store may not have done.
func (e *Engine) gaveBack(settles []*job.Settle, since time.Time, attempt int) {
	var again []*job.Settle
	for _, s := range settles {
		switch {
		case s.Err == nil:
			e.metrics.returned.Inc()
		case errors.Is(s.Err, partition.ErrBroken) || errors.Is(s.Err, ErrStopping) ||
			time.Since(since) > maxReturn:
			e.metrics.notReturned.Inc()
		default:
			again = append(again, s)
		}
	}
	if len(again) == 0 {
		e.returns.Done()
		return
	}
	pause := min(minPause<<min(attempt, 6), time.Second)
	time.AfterFunc(pause/2+rand.N(pause/2), func() { // #nosec G404 -- spreads load
		for _, s := range again {
			s.Err = nil
		}
		e.giveBack(again, since, attempt+1)
	})
}
