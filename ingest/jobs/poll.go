package jobs

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
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
	// MaxBytes bounds the payloads in bytes, about; default 4 MiB. One job is always handed
	// out.
	MaxBytes int
	// Wait is how long it waits for the first job; 0 not at all.
	Wait time.Duration
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

const defaultMaxBytes = 4 << 20

// step is a claim of one shard, of queues that follow each other in the poll's. It is small,
// because a poll may have as many as queues.
type step struct {
	shard    int
	from, to int32 // in Queues
	first    int32 // how many seats the steps before have
}

// queues are those of a step.
func (p *poll) queues(step int) []string { return p.Queues[p.steps[step].from:p.steps[step].to] }

// The states of a poll.
type pollState uint8

const (
	asking  pollState = iota // a claim is queued or sent
	waiting                  // in its rooms, or until its timer
	ended
)

// poll is a Claim under way. The engine's lock guards it, but claim and jobs, which belong
// to the lane while the poll asks.
type poll struct {
	Claim
	ns    *job.Namespace // Namespace, or what has followed it
	steps []step
	at    int // in steps
	claim job.Claim
	work  work
	lane  *lane
	jobs  []job.Job
	bytes int // of jobs

	state       pollState
	seats       []seat // by step and queue; nil: it does not wait
	deadline    time.Time
	timer       *time.Timer
	failures    int  // claims in a row that failed, or told nothing
	woken       bool // by a room, and has not asked since
	unconfirmed bool // it waits, but may have missed something
	leaving     bool // it is to end when its claim has ended, with err
	late        bool // its deadline is over
	looked      bool // all its queues were asked
	err         error
	done        chan struct{}
	empty       []*room // that no poll wants since this one has ended
	watch       watch
}

// Claim takes jobs. Without any it waits, up to Wait, and then returns none; also when
// Stopping is closed or the engine stops. It returns none only if it has asked for all queues.
// Otherwise an error is one of the engine's or of the store's: an outage that lasts until the
// end of Wait is an error, too.
func (e *Engine) Claim(c *Claim) ([]job.Job, error) {
	if !e.enter() {
		return nil, ErrStopping
	}
	defer e.claims.Done()
	p := &poll{Claim: *c, ns: c.Namespace, done: make(chan struct{})}
	if p.MaxBytes == 0 {
		p.MaxBytes = defaultMaxBytes
	}
	p.work.poll, p.work.namespace = p, c.Namespace.Name
	if !e.begin(p) {
		return nil, ErrOverloaded
	}
	select {
	case <-p.done:
	case <-c.Stopping:
		e.mu.Lock()
		e.leave(p, nil)
		e.mu.Unlock()
		<-p.done
	}
	e.hangups.remove(p)
	e.unwant(p.empty)
	if len(p.jobs) == 0 {
		return nil, p.err
	}
	switch {
	case p.err == ErrHungUp || hasHungUp(c.Conn):
		p.err = ErrHungUp
	case p.err == ErrRevoked || c.Wait > 0 && c.Revoked != nil && c.Revoked():
		p.err = ErrRevoked
	default: // a shard that failed afterwards is asked by the next claim
		return p.jobs, nil
	}
	e.GiveBack(p.ns, p.jobs)
	return nil, p.err
}

// begin sends the first claim of a poll; false: there is no memory for it.
func (e *Engine) begin(p *poll) bool {
	var fresh []*room
	e.mu.Lock()
	e.plan(p)
	if p.Reserve != nil && !p.Reserve(e.cost(p)) {
		e.mu.Unlock()
		return false
	}
	p.lane = e.claimLane(&p.Claim)
	if e.stopped { // since it was counted
		p.Wait = 0
	}
	if p.Wait > 0 {
		p.deadline = time.Now().Add(p.Wait)
		e.polls[p] = struct{}{}
		fresh = e.join(p)
	}
	e.mu.Unlock()
	e.want(fresh)
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.state == ended { // by Stop
		return true
	}
	if p.Wait > 0 {
		p.timer = time.AfterFunc(p.Wait, func() { e.tick(p) })
	}
	e.ask(p)
	return true
}

// plan cuts a poll into claims of one shard each. Queues in a row of the same shard are one
// claim, up to job.MaxQueues, so that the order of queues holds. Of a queue over
// several shards another one is the first each time.
func (e *Engine) plan(p *poll) {
	e.turn++
	p.steps = p.steps[:0]
	at, seats := int32(0), int32(0)
	for _, queue := range p.Queues {
		shards := p.ns.Shards(queue)
		for i := range shards {
			shard := shards[(e.turn+i)%len(shards)]
			if n := len(p.steps); n > 0 && p.steps[n-1].shard == shard && len(p.queues(n-1)) < job.MaxQueues {
				p.steps[n-1].to++
			} else {
				p.steps = append(p.steps, step{shard, at, at + 1, seats})
			}
			seats++
		}
		at++
	}
}

// ask begins to ask all shards of a poll.
func (e *Engine) ask(p *poll) {
	for i := range p.seats {
		p.seats[i].stand()
	}
	p.state, p.at, p.unconfirmed = asking, 0, false
	p.work.jobs = min(p.Count, e.took[p.ns.Name])
	p.lane.put(&p.work)
}

// sends prepares the next claim of a poll; false: the poll does not ask after all.
func (e *Engine) sends(p *poll) bool {
	if p.seats != nil && hasHungUp(p.Conn) {
		e.hungUp(p)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.seats != nil && p.Revoked != nil && p.Revoked() {
		e.leave(p, ErrRevoked)
	}
	if p.mayEnd() {
		e.end(p)
		return false
	}
	shard, queues := p.steps[p.at].shard, p.queues(p.at)
	p.claim = job.Claim{
		Namespace: p.ns, Shard: shard, Queues: queues, TTR: p.TTR,
		Count: p.Count - len(p.jobs), MaxBytes: p.MaxBytes - p.bytes, ReportLeft: p.seats != nil,
	}
	if p.seats != nil {
		seats := p.seats[p.steps[p.at].first:][:len(queues)]
		for i := range seats {
			seats[i].subscribed, seats[i].heard = seats[i].room.subscribed, seats[i].room.heard
		}
	}
	for _, queue := range queues {
		if p.claim.ReportLeft {
			break
		}
		r := e.rooms[roomKey{p.ns.Name, shard, queue}]
		p.claim.ReportLeft = r != nil && r.first != nil
	}
	return true
}

// answered is called by the lane when a claim has its result.
func (e *Engine) answered(p *poll) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &p.claim
	if c.Err != nil {
		e.fail(p, c.Err)
		return
	}
	if !p.leaving {
		p.err = nil
	}
	left := e.passLeft(p, c)
	p.jobs = append(p.jobs, c.Jobs...)
	bytes := 0
	for i := range c.Jobs {
		bytes += len(c.Jobs[i].Payload) + len(c.Jobs[i].Attributes)
	}
	p.bytes += bytes
	e.took[p.ns.Name] = len(c.Jobs)
	if n := len(c.Jobs); n > 0 && bytes/n >= largePublish {
		e.large[p.ns.Name] = true
	} else if n > 0 {
		delete(e.large, p.ns.Name)
	}
	if c.More && len(p.jobs) == 0 && !p.mayEnd() { // others filled the answer
		p.lane.put(&p.work)
		return
	}
	p.at++
	p.looked = p.looked || p.at == len(p.steps)
	switch {
	case p.at < len(p.steps) && len(p.jobs) < p.Count && p.bytes < p.MaxBytes && !p.mayEnd():
		p.lane.put(&p.work)
	case len(p.jobs) > 0, p.leaving, p.seats == nil:
		e.end(p)
	case left:
		e.again(p)
	default:
		p.woken = false // all its queues were looked at
		e.wait(p)
	}
}

// passLeft wakes others for what a claim left. It reports whether jobs are left.
func (e *Engine) passLeft(p *poll, c *job.Claim) (any bool) {
	for i, n := range c.Left {
		if n == 0 {
			continue
		}
		any = true
		if r := e.rooms[roomKey{p.ns.Name, c.Shard, c.Queues[i]}]; r != nil {
			e.wake(r, max(1, n)) // -1: unknown
		}
	}
	return any
}

// failed is fail, without the lock.
func (e *Engine) failed(p *poll, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail(p, err)
}

// fail handles a claim that failed. What came before it goes out; else a poll that waits
// asks again, later.
func (e *Engine) fail(p *poll, err error) {
	if !p.leaving || p.err == nil {
		p.err = err
	}
	retry := !errors.Is(err, partition.ErrBroken) && !errors.Is(err, job.ErrBadArgument) && !errors.Is(err, ErrStopping)
	if len(p.jobs) > 0 || p.leaving || p.seats == nil || !retry {
		e.end(p)
		return
	}
	e.again(p)
}

// again lets a poll ask again after a pause, or when its rooms wake it.
func (e *Engine) again(p *poll) {
	p.failures++
	p.state, p.unconfirmed = waiting, true
	e.sit(p)
}

// sit seats a poll that waits.
func (e *Engine) sit(p *poll) {
	for i := range p.seats {
		p.seats[i].sit()
	}
	p.claim = job.Claim{} // it may wait for long
	e.setTimer(p)
	e.hangups.add(p)
}

// wait lets a poll wait, if it missed nothing since its claims were sent.
func (e *Engine) wait(p *poll) {
	p.state = waiting
	if e.store.Namespace(p.ns.Name) != p.ns {
		e.running.Go(func() { e.replan(p) })
		return
	}
	for i := range p.seats {
		s := &p.seats[i]
		switch {
		case !s.subscribed:
			p.unconfirmed = true
		case s.heard != s.room.heard:
			e.ask(p)
			return
		}
	}
	if p.unconfirmed && p.subscribed() { // since then
		e.ask(p)
		return
	}
	if p.unconfirmed {
		p.failures++
	} else {
		p.failures = 0
	}
	e.sit(p)
}

// subscribed reports whether all rooms of a poll are.
func (p *poll) subscribed() bool {
	for i := range p.seats {
		if !p.seats[i].room.subscribed {
			return false
		}
	}
	return true
}

// Pauses of polls that ask again without being woken.
const (
	minPause = 20 * time.Millisecond
	maxPause = 5 * time.Second
)

// setTimer sets the timer of a poll that waits: to its deadline, or to when it asks again.
func (e *Engine) setTimer(p *poll) {
	left := time.Until(p.deadline)
	if p.unconfirmed {
		pause := min(minPause<<min(p.failures, 10), maxPause)
		pause = pause/2 + rand.N(pause/2) // #nosec G404 -- spreads load
		left = min(left, pause)
	}
	p.timer.Reset(left)
}

// tick is called by the timer of a poll.
func (e *Engine) tick(p *poll) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case p.state == ended:
	case !time.Now().Before(p.deadline):
		p.late = true
		e.leave(p, p.err)
	case p.state == waiting && p.unconfirmed:
		e.ask(p)
	}
}

// mayEnd reports whether a poll that leaves needs no further claim. Before it has asked all its
// queues there is no saying that they have no job.
func (p *poll) mayEnd() bool {
	return p.leaving && (p.looked || len(p.jobs) > 0 || p.err != nil && !p.late)
}

// leave ends a poll: now, or when its claims have ended. One that waits because claims failed
// ends with their error if err is nil.
func (e *Engine) leave(p *poll, err error) {
	switch {
	case p.state == waiting:
		if err != nil {
			p.err = err
		}
		e.end(p)
	case p.state == asking && !p.leaving:
		p.leaving, p.err = true, err
	}
}

// hungUp is called when the client of a poll went away.
func (e *Engine) hungUp(p *poll) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leave(p, ErrHungUp)
}

// end gives a poll its result. A poll that was woken, and ends before it has asked all its
// queues, wakes the next poll of each room that it did not ask.
func (e *Engine) end(p *poll) {
	p.state = ended
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.seats != nil {
		asked := len(p.seats) // of the steps that are over
		if p.at < len(p.steps) {
			asked = int(p.steps[p.at].first)
		}
		var rest []*room
		for i := asked; i < len(p.seats) && p.woken; i++ {
			rest = append(rest, p.seats[i].room)
		}
		delete(e.polls, p)
		p.empty = e.part(p)
		for _, r := range rest {
			e.wake(r, 1)
		}
	}
	close(p.done)
}
