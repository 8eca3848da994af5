package jobs

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

// Claim asks for jobs of some queues.
type Claim struct {
	Namespace *job.Namespace
	// Queues are the most wanted first, each once. The engine keeps the slice, and may replace
	// a name by an equal one.
	Queues []string
	// TTR is how long the jobs are leased, from 0 to job.MaxTTR.
	TTR time.Duration
	// Count is how many jobs it takes at most: 1 to job.MaxCount.
	Count int
	// Wait is how long it waits for the first job; 0 not at all.
	Wait time.Duration
	// By is who claims, for traces; empty: nobody that has a name.
	By string
	// Conn is the client's connection. A client that closes it, or its half of it, gets no
	// job. nil: it is not watched.
	Conn syscall.RawConn
	// Stopping ends the wait when it is closed; nil: never.
	Stopping <-chan struct{}
	// Revoked reports whether the client's token was removed; nil: never. It is called
	// under a lock, so it must be quick.
	Revoked func() bool
	// Reserve reserves memory for the wait in bytes, or returns false: the claim ends with
	// ErrOverloaded. nil: it needs none. It is called under a lock.
	Reserve func(bytes int) bool
}

// maxPollBytes bounds the payloads of a claim in bytes, about. One job is always handed out.
const maxPollBytes = 4 << 20

// step is a claim of one shard, of queues that follow each other in the poll's. It is small,
// because a poll may have as many as queues.
type step struct {
	shard    int
	from, to int32 // in Queues
}

// poll is a Claim under way. It belongs to the goroutine of the caller, which changes
// Namespace, steps and what comes after client only under the engine's lock.
type poll struct {
	Claim        // Namespace: or what has followed it
	shards   int // of the namespace when steps were planned
	steps    []step
	at       int // how many steps were asked
	claim    job.Claim
	work     work
	answered chan struct{} // has room for one
	jobs     []job.Job
	bytes    int // of jobs
	deadline time.Time

	client
	waiters []waiter // by step and queue; nil: it did not have to wait yet
	listed  bool     // its waiters are in the lists of their queues: none has woken it
	woke    *queue   // that woke it, while it has not asked since
	asking  bool     // it asks again: what wakes it now may come too late for that
	failing bool     // it has asked last with an error
	unheard int      // while it is listed: how many of its queues are not subscribed
	ended   bool     // its worker is to restart: it waits no longer
}

// queues are those of a step.
func (p *poll) queues(step int) []string { return p.Queues[p.steps[step].from:p.steps[step].to] }

// A client is one that waits: for jobs, or for the end of one.
type client struct {
	conn  syscall.RawConn  // nil: it is none of the system
	watch int32            // its number in hangups; 0: none
	wake  lifecycle.Signal // has room for one: there may be a reason to ask, or to end
}

// nudge makes the waiting client check whether it has to ask, or to end.
func (c *client) nudge() { c.wake.Ring() }

// Claim takes jobs. Without any it waits, up to Wait, and then returns none; also when
// Stopping is closed or the engine stops. It returns none only if it has asked for all queues.
// Otherwise an error is one of the engine's or of the store's: an outage that lasts until the
// end of Wait is an error, too.
func (e *Engine) Claim(c *Claim) ([]job.Job, error) {
	if !e.enter() {
		return nil, ErrStopping
	}
	defer e.claims.Done()
	p := &poll{
		Claim:    *c,
		deadline: time.Now().Add(c.Wait),
		answered: make(chan struct{}, 1),
		client:   client{conn: c.Conn, wake: lifecycle.NewSignal()},
	}
	p.work = work{namespace: c.Namespace.Name, done: func() {
		if !e.passedOn(p) {
			e.learn(p)
			p.answered <- struct{}{}
		}
	}}
	p.work.batch.Claims = []*job.Claim{&p.claim}
	e.mu.Lock()
	e.plan(p)
	e.mu.Unlock()
	err := e.ask(p, nil)
	if p.waits(err) {
		err = e.wait(p, err)
	}
	if len(p.jobs) == 0 {
		return nil, err
	}
	// A shard that failed after there were jobs is asked by the next claim.
	if err = p.gone(); err != nil {
		e.GiveBack(p.Namespace, p.jobs)
		return nil, err
	}
	return p.jobs, nil
}

// gone is why the client of a poll gets no jobs any more; nil: it does.
func (p *poll) gone() error {
	switch {
	case hasHungUp(p.Conn):
		return ErrHungUp
	case p.Wait > 0 && p.Revoked != nil && p.Revoked():
		return ErrRevoked
	}
	return nil
}

// waits reports whether a poll goes on after it has asked. An outage may be over before its
// deadline.
func (p *poll) waits(err error) bool {
	lasting := errors.Is(err, partition.ErrBroken) || errors.Is(err, job.ErrBadArgument) ||
		errors.Is(err, ErrStopping)
	return len(p.jobs) == 0 && !lasting && time.Now().Before(p.deadline)
}

// Pauses of polls that ask again without being woken.
const (
	minPause = 20 * time.Millisecond
	maxPause = 5 * time.Second
)

// wait asks whenever there may be jobs, until there are or the wait is over. err is what the
// poll has asked with before, and wait returns what it has asked with last.
//
// Without a wake it asks only once all its queues are subscribed: what came before is found
// then, and what comes later wakes it. While they are not, or the store fails, it asks after
// pauses.
func (e *Engine) wait(p *poll, err error) error {
	e.hangups.add(&p.client)
	defer e.leave(p)
	paused := false
	for failures := 0; p.waits(err); {
		heard, woken, ends := e.follow(p)
		switch {
		case ends == ErrStopping:
			return err
		case ends != nil:
			return ends
		case heard || woken || paused:
			if err = e.askAgain(p, err, woken); !p.waits(err) {
				return err
			}
		}
		left := time.Until(p.deadline)
		if heard && err == nil {
			failures = 0
		} else {
			pause := min(minPause<<min(failures, 10), maxPause)
			left = min(left, pause/2+rand.N(pause/2)) // #nosec G404 -- spreads load
			failures++
		}
		paused = false
		select {
		case <-p.wake:
		case <-time.After(left):
			paused = true
		case <-p.Stopping:
			return err
		}
	}
	return err
}

// plan cuts a poll into claims of one shard each. Queues in a row of the same shard are one
// claim, up to job.MaxQueues, so that the order of queues holds. Of a queue over
// several shards another one is the first each time.
func (e *Engine) plan(p *poll) {
	e.turn++
	p.steps, p.at, p.shards = p.steps[:0], 0, p.Namespace.ShardCount()
	for i, queue := range p.Queues {
		at := int32(i) // #nosec G115 -- a request has fewer
		shards := p.Namespace.Shards(queue)
		for i := range shards {
			shard := shards[(e.turn+i)%len(shards)]
			if n := len(p.steps); n > 0 && p.steps[n-1].shard == shard && len(p.queues(n-1)) < job.MaxQueues {
				p.steps[n-1].to++
			} else {
				p.steps = append(p.steps, step{shard, at, at + 1})
			}
		}
	}
}

// askAgain asks for a poll that waits. If that fails, the poll goes behind all that wait, and what
// woke it wakes others in the queues that it did not ask: not those that fail, too, and would wake
// it in turn. They ask after their pauses.
func (e *Engine) askAgain(p *poll, before error, woken bool) error {
	e.mu.Lock()
	p.asking = true
	e.mu.Unlock()
	err := e.ask(p, before)
	e.mu.Lock()
	defer e.mu.Unlock()
	p.asking, p.failing = false, err != nil
	if p.failing && p.listed {
		p.unlist()
		p.list()
	}
	if p.failing && woken {
		for _, w := range p.waiters[p.before(p.at):] {
			e.wake(w.queue, 1, false)
		}
	}
	return err
}

// over reports whether a poll that waits is to end.
func (e *Engine) over(p *poll) bool {
	select {
	case <-p.Stopping:
		return true
	default:
	}
	e.mu.Lock()
	stopped := e.stopped
	e.mu.Unlock()
	return stopped || !time.Now().Before(p.deadline) || p.gone() != nil
}

// ask asks the shards of a poll in turn, one a flush, until it has enough. One that waits has
// asked all of them before: where it is to end, it asks no further, and returns before, the
// error of that time. leave wakes others for the rest.
func (e *Engine) ask(p *poll, before error) error {
	c := &p.claim
	defer func() { *c = job.Claim{} }() // it may wait for long
	for p.at = 0; p.at < len(p.steps) && len(p.jobs) < p.Count && p.bytes < maxPollBytes; {
		if p.waiters != nil && e.over(p) {
			p.nudge()
			return before
		}
		e.prepare(p).put(&p.work)
		<-p.answered
		if c.Err != nil {
			return c.Err
		}
		p.jobs, p.bytes = append(p.jobs, c.Jobs...), p.bytes+sizeOf(c.Jobs)
		if !c.More || len(p.jobs) > 0 { // else others filled the answer
			p.at++
		}
	}
	return nil
}

// passedOn asks the next shard for a poll that has not waited yet, where one had no job. It runs in
// the lane, so that polls of one flush share the next one, too.
func (e *Engine) passedOn(p *poll) bool {
	c := &p.claim
	if p.waiters != nil || c.Err != nil || c.More || len(c.Jobs) > 0 || p.at+1 == len(p.steps) {
		return false
	}
	e.learn(p)
	p.at++
	e.prepare(p).put(&p.work)
	return true
}

// prepare makes the next claim of a poll, and returns its lane: that for large jobs where those
// of its namespace were large the last time.
func (e *Engine) prepare(p *poll) *lane {
	shard, queues := p.steps[p.at].shard, p.queues(p.at)
	p.claim = job.Claim{
		Namespace:  p.Namespace,
		Shard:      shard,
		Queues:     queues,
		TTR:        p.TTR,
		Count:      p.Count - len(p.jobs),
		MaxBytes:   maxPollBytes - p.bytes,
		ReportLeft: p.waiters != nil,
		By:         p.By,
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := 0; i < len(queues) && !p.claim.ReportLeft; i++ {
		of := e.queues[queueKey{p.Namespace.Name, shard, queues[i]}]
		p.claim.ReportLeft = of != nil && of.first() != nil
	}
	last := e.last[p.Namespace.Name]
	p.work.jobs = min(p.Count, last.jobs)
	if last.large {
		return e.largeLane(p.Namespace, p.Queues[0])
	}
	return e.laneOf(p.Namespace, p.Queues[0])
}

func sizeOf(jobs []job.Job) (bytes int) {
	for i := range jobs {
		bytes += len(jobs[i].Payload) + len(jobs[i].Attributes)
	}
	return bytes
}

// learn wakes others for what a poll's claim left, and remembers what it got, for the next of
// its namespace. It runs in the lane, in the order of the answers: what an older one has left, a
// later one may have got.
func (e *Engine) learn(p *poll) {
	c := &p.claim
	namespace := c.Namespace.Name
	n := len(c.Jobs)
	bytes := sizeOf(c.Jobs)
	e.mu.Lock()
	defer e.mu.Unlock()
	p.asked()
	if c.Err != nil {
		return
	}
	for i, left := range c.Left {
		of := e.queues[queueKey{namespace, c.Shard, c.Queues[i]}]
		switch {
		case of == nil || left == 0:
		case c.Held[i] > 0:
			e.hold(of, c.Held[i])
		default:
			e.wake(of, max(1, left)-of.woken, true) // -1: unknown
		}
	}
	last := answer{n, e.last[namespace].large}
	if n > 0 {
		last.large = bytes/n >= largePublish
	}
	e.last[namespace] = last
}
