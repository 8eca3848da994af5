package job

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

// A DueShard is a shard with schedules that are due.
type DueShard struct {
	Namespace *Namespace
	Shard     int
}

// dueShards are those where something was found since they were taken. Those of schedules are
// the promoter's: it looks at each shard when something comes due there, so schedules cost a
// shard that has none one command a second in a pipeline.
type dueShards struct {
	mu   sync.Mutex
	all  map[DueShard]bool
	wake lifecycle.Signal
}

func (d *dueShards) add(s DueShard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[DueShard]bool{}
	}
	d.all[s] = true
	d.wake.Ring()
}

// SchedulesDue has a value when TakeDue returns some.
func (s *scheduler) SchedulesDue() <-chan struct{} { return s.due.wake }

// TakeDue returns the shards where schedules came due since the last call, while a Promoter runs, and
// those whose clock went back: any of their schedules may have to come sooner.
func (s *scheduler) TakeDue() (due, behind []DueShard) { return s.due.take(), s.behind.take() }

func (d *dueShards) take() []DueShard {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := slices.Collect(maps.Keys(d.all))
	clear(d.all)
	return list
}

// An alarm wakes the promoter of this process before it means to look.
type alarm struct {
	until atomic.Int64 // ms on the store's clock until which it sleeps; 0: it is about to look anyway
	wake  lifecycle.Signal
}

// ring wakes the promoter now.
func (a *alarm) ring() {
	a.until.Store(0)
	a.wake.Ring()
}

// comesDue tells that something of a shard comes due at a time, in ms on the store's clock.
func (s *core) comesDue(sh *shard, at int64) {
	for {
		look := sh.look.Load()
		if at >= look {
			return // the promoter looks before
		}
		if sh.look.CompareAndSwap(look, at) {
			break
		}
	}
	if at < s.alarm.until.Load() {
		s.alarm.ring()
	}
}

// ScheduleComesDue tells that a schedule of a shard deserves a look at a time, Unix ms.
func (s *core) ScheduleComesDue(d DueShard, at int64) { s.comesDue(d.Namespace.shardAt(d.Shard), at) }

// A DueSchedule is one of a page.
type DueSchedule struct {
	Queue, Name string
	At          int64 // when it deserves a look, Unix ms
	State       string
}

// dueAhead is how far DueSchedules looks ahead, in ms, so that the caller knows how long to sleep.
const dueAhead = 1000

// DueSchedules returns the schedules of a shard that are due now, or within the next second, at
// most limit, without the first skip. now is the store's time.
func (s *scheduler) DueSchedules(ctx context.Context, ns *Namespace, shard, skip,
	limit int) (now int64, list []DueSchedule, err error) {
	if !ns.Usable() {
		return 0, nil, backend.ErrUnavailable
	}
	sh := ns.shardAt(shard)
	c := backend.NewCall(luajob.DuePage, sh.Breaker, []string{sh.due, sh.states}, dueAhead, skip, limit)
	s.backend.Run(ctx, s.backend.Background, []*backend.Call{c})
	if c.Err != nil {
		return 0, nil, c.Err
	}
	for n := c.More / 3; n > 0; n-- {
		member := string(c.Rest.Bulk())
		at := c.Rest.Int()
		state := string(c.Rest.Bulk())
		name, queue, _ := strings.Cut(member, " ")
		list = append(list, DueSchedule{queue, name, at, state})
	}
	if c.Rest.Broken {
		return 0, nil, c.Misread()
	}
	return c.Now, list, nil
}

// LookAt lets active schedules deserve their next look at a time, Unix ms.
func (s *scheduler) LookAt(ctx context.Context, d DueShard, at int64, list ...DueSchedule) error {
	if len(list) == 0 {
		return nil
	}
	sh := d.Namespace.shardAt(d.Shard)
	looks := make([]redis.Z, len(list))
	for i, due := range list {
		looks[i] = redis.Z{Score: float64(at), Member: due.Name + " " + due.Queue}
	}
	return backend.Classify(s.backend.ClientFor(ctx, sh.Ledger).ZAddXX(ctx, sh.due, looks...).Err())
}

// A ScheduleRun is the jobs of one tick.
type ScheduleRun struct {
	Tick     int64 // Unix ms
	Cause    byte  // d due, c caught up, w waited, t triggered, b backfilled
	Messages []Message
}

// Runs is how the jobs of a schedule's runs are stored.
type Runs struct {
	Track bool          // the state counts the jobs that ended well, and that did not
	OnEnd string        // the queue that gets a follow-up for each job; "": none
	Tries int           // 0: the queue's default, Namespace.Tries
	TTL   time.Duration // 0: for ever
	List  []ScheduleRun
}

func (r *Runs) jobs() (n int) {
	for _, run := range r.List {
		n += len(run.Messages)
	}
	return n
}

// A Firing moves one schedule on.
type Firing struct {
	Queue, Name, State string // the state as it was read
	Overlap            string // allow, skip or buffer
	Owner              string // "": none
	By                 string // the token whose rate holds for what it publishes; "": none
	Counts             int    // what a run takes of that rate
	Left               int64  // runs that it may have yet; -1: any
	Next, Look         int64  // the next tick and when that deserves a look, Unix ms; 0: none
	Missed, Paused     int    // ticks that count so
	Past               string // see package schedule
	Held               bool   // a tick waits for the run before, and is not in List
	Runs

	Status FireStatus
	Fired  int   // runs that were published
	First  int64 // sequence of the first job of the last of them
}

// atOnce is how many of its runs a call publishes at most: runs that may not overlap go one by one.
func (f *Firing) atOnce() int {
	if f.Overlap == "allow" {
		return len(f.List)
	}
	return min(1, len(f.List))
}

// FireStatus is what became of a Firing.
type FireStatus int64

// What becomes of a Firing.
const (
	Stale    FireStatus = 0 // the state is another one: somebody else fired, put or paused
	Fired    FireStatus = 1
	Untimely FireStatus = 2 // the plan is older than 5 s, or the clock went back behind it
	// Unregistered: moved on, and no run was published, as its owner is not registered.
	Unregistered FireStatus = 3
	NoRoom       FireStatus = 4 // fired up to a run for which there was no room
	unpaid       FireStatus = 5 // a run can be published, and the rate of its token is to be taken first
	Closed       FireStatus = 7 // the namespace is being deleted
	Foreign      FireStatus = -1
)

// Fire fires schedules of one shard in one script call. Runs that take the rate of a token are published by a second
// call, once the first has said that they can be. made is the store's time at which they were planned, Unix ms. One that is done by somebody else, or too late, changes nothing: its
// Status says so. at is when it ran, by the store's clock.
func (s *scheduler) Fire(ctx context.Context, ns *Namespace, shard int, made int64,
	firings []*Firing) (at int64, err error) {
	if err := s.mayRun(ns); err != nil {
		return 0, err
	}
	if at, err = s.fire(ctx, ns, shard, made, firings); err != nil {
		return at, err
	}
	var paid []*Firing
	for _, f := range firings {
		if f.Status == unpaid {
			paid = append(paid, f)
		}
	}
	if len(paid) > 0 {
		_, err = s.fire(ctx, ns, shard, made, paid)
	}
	return at, err
}

// fire is a script call. It takes the rate of those that an earlier one found unpaid.
func (s *scheduler) fire(ctx context.Context, ns *Namespace, shard int, made int64,
	firings []*Firing) (at int64, err error) {
	refund := make([]func(int), len(firings))
	defer func() {
		for i, f := range firings {
			if refund[i] != nil && !errors.Is(err, backend.ErrUnknown) {
				refund[i](f.Counts * (f.atOnce() - f.Fired))
			}
		}
	}()
	for i, f := range firings {
		if f.Status == unpaid {
			var held int
			refund[i], held = s.takeRate.spend(ctx, ns, made, f)
			s.metrics.limited.Add(float64(held))
		}
	}
	sh := ns.shardAt(shard)
	var of numbers
	of.reset()
	for _, f := range firings {
		of.number(f.Queue)
	}
	keys := []string{sh.Ledger, sh.queues, sh.states, sh.due, sh.onEnd, sh.owners}
	for _, queue := range of.names {
		keys = append(keys, sh.ready(queue), sh.jobs(queue), sh.dead(queue))
	}
	argv := []any{
		ns.part(ns.Policy.MaxJobs),
		ns.part(ns.Policy.MaxQueues),
		sh.channel,
		s.wake,
		made,
		len(of.names),
	}
	for _, queue := range of.names {
		argv = append(argv, queue)
	}
	for _, f := range firings {
		ask := 0
		if s.takeRate != nil && f.By != "" && f.Status != unpaid {
			ask = 1
		}
		argv = append(
			argv,
			of.number(f.Queue),
			f.Name,
			f.State,
			f.Overlap,
			f.Owner,
			f.watch(f.Name),
			f.Left,
			f.Next,
			f.Look,
			f.Missed,
			f.Paused,
			f.Past,
			ask,
			len(f.List),
		)
		for _, run := range f.List {
			argv = append(argv, run.Tick, string(run.Cause), len(run.Messages))
			argv = f.appendRecords(argv, made, ns.Tries(f.Queue), run.Messages)
		}
	}
	round := s.space.Round()
	c := backend.NewCall(luajob.Fire, sh.Breaker, keys, argv...)
	s.backend.RunDurably(ctx, s.backend.In, []*backend.Call{c})
	if c.Err != nil {
		return 0, c.Err
	}
	for _, f := range firings {
		f.Status = FireStatus(c.Rest.Int())
		f.Fired = int(c.Rest.Int())
		f.First = c.Rest.Int()
		if f.Fired > 0 {
			jobs, each := f.jobs()*f.Fired/len(f.List), f.jobs()/len(f.List)
			sh.Stored(round, jobs)
			s.notePublished(
				ns,
				f.Queue,
				"schedule "+f.Name,
				Ref{Shard: shard, Seq: f.First - int64(jobs-each)},
				jobs,
			)
		}
		if !c.Rest.Broken {
			sh.schedules.account(f)
		}
	}
	if c.Rest.Broken {
		return 0, c.Misread()
	}
	return c.Now, c.Unconfirmed
}

// TakeRate takes jobs off the rate of a token over all processes, or nothing: then wait is how long until
// it allows them, negative where it never does. refund gives some back.
type TakeRate func(ctx context.Context, namespace, token string, jobs int) (refund func(int), wait time.Duration,
	err error)

// neverAllowed is how long a run waits that has more jobs than the rate of its token ever allows at once.
const neverAllowed = time.Minute

// spend takes what a firing publishes off the rate of the token that put the schedule. The runs for which that has no
// room are held: left out, so they stay due, and are judged again by how late they are once the rate allows one.
func (take TakeRate) spend(ctx context.Context, ns *Namespace, made int64, f *Firing) (refund func(int), held int) {
	all := f.List
	wait := time.Duration(0)
	for f.List = all; len(f.List) > 0; f.List = f.List[:f.atOnce()-1] {
		var err error
		refund, wait, err = take(ctx, ns.Name, f.By, f.Counts*f.atOnce())
		if err != nil { // the rate lies elsewhere, and holds up no other schedule
			f.List, refund, wait = nil, nil, time.Second
			break
		}
		if wait == 0 {
			break
		}
	}
	left := all[len(f.List):]
	if held = len(left); held > 0 {
		if left[0].Cause == 'w' {
			left = left[1:] // it goes on waiting
		}
		if len(left) > 0 {
			f.Next = left[0].Tick
		}
		if wait < 0 {
			wait = neverAllowed
		}
		f.Look = made + ms(wait)
	}
	return refund, held
}

// watch is what the end of a job of a schedule sets off, as the scripts keep it.
func (r *Runs) watch(schedule string) string {
	if !r.Track {
		schedule = ""
	}
	return onEnd(schedule, r.OnEnd, "")
}

func (r *Runs) appendRecords(argv []any, now int64, tries int, messages []Message) []any {
	expires := int64(0)
	if r.TTL > 0 {
		expires = min(now+max(1, ms(r.TTL)), maxExpiry)
	}
	for _, m := range messages {
		argv = append(argv, appendRecord(nil, expires, cmp.Or(r.Tries, tries), "", m))
	}
	return argv
}
