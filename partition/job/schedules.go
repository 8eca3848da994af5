package job

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// A Schedule is what the store keeps of one: text, to which package schedule gives its meaning.
type Schedule struct {
	Queue, Name string
	Spec        []byte
	State       string
}

// The errors of schedules.
var (
	// ErrNoSchedule: the queue has no schedule of that name.
	ErrNoSchedule = errors.New("no such schedule")
	// ErrTooManySchedules: a further schedule beyond Policy.MaxSchedules. Nothing was stored.
	ErrTooManySchedules = errors.New("too many schedules")
	// ErrUnfinished: a job of the schedule's last run is neither ended nor dead. Nothing was published.
	ErrUnfinished = errors.New("the last run is unfinished")
	// ErrEnded: the schedule has no further tick.
	ErrEnded = errors.New("the schedule has ended")
	// ErrChanged: the state is not the one that the caller read. Nothing was done: read it again.
	ErrChanged = errors.New("the schedule has changed since it was read")
	// ErrDue: a tick came due since the caller read the state. Nothing was done: fire it first.
	ErrDue = errors.New("a tick of the schedule has come due")
)

// MaxScheduleNameLen is the length of the name of a schedule, in bytes.
const MaxScheduleNameLen = 128

// ValidScheduleName reports whether s matches ^[A-Za-z0-9-][A-Za-z0-9._-]{0,127}$.
func ValidScheduleName(s string) bool {
	return len(s) <= MaxScheduleNameLen && ValidQueue(s) && s[0] != '_'
}

// ScheduleShard is the shard that has a schedule: of a queue over several, its name chooses one.
func (n *Namespace) ScheduleShard(queue, name string) int {
	shards := n.Shards(queue)
	return shards[mixed(hashed(hashed(n.seed, queue)*fnvPrime, name))%uint64(len(shards))]
}

func (n *Namespace) scheduleShard(queue, name string) (*shard, error) {
	if n == nil || !ValidQueue(queue) || !ValidScheduleName(name) {
		return nil, ErrBadArgument
	}
	return n.shards[n.ScheduleShard(queue, name)], nil
}

// GetSchedule returns a schedule, or ErrNoSchedule.
func (s *Store) GetSchedule(ctx context.Context, ns *Namespace, queue, name string) (Schedule, error) {
	sh, err := ns.scheduleShard(queue, name)
	if err != nil {
		return Schedule{}, err
	}
	found := []Schedule{{Queue: queue, Name: name}}
	if err := s.reads.Do(ctx, func() error { return s.readSchedules(ctx, sh, found) }); err != nil {
		return Schedule{}, err
	}
	if found[0].State == "" {
		return Schedule{}, ErrNoSchedule
	}
	return found[0], nil
}

// ReadSpecs reads the specifications and states of schedules of one shard. Those of one that is gone
// are empty.
func (s *Store) ReadSpecs(ctx context.Context, ns *Namespace, shard int, list []Schedule) error {
	return s.readSchedules(ctx, ns.shards[shard], list)
}

// readSchedules reads specification and state of schedules in one transaction, so that they belong together.
func (s *Store) readSchedules(ctx context.Context, sh *shard, list []Schedule) error {
	type reads struct{ spec, state *redis.StringCmd }
	pipe := s.backend.Background.TxPipeline()
	all := make([]reads, len(list))
	for i, l := range list {
		all[i] = reads{pipe.HGet(ctx, sh.specs(l.Queue), l.Name), pipe.HGet(ctx, sh.states, l.Name+" "+l.Queue)}
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return backend.Classify(err)
	}
	for i, r := range all {
		if r.spec.Err() == nil && r.state.Err() == nil {
			list[i].Spec, list[i].State = []byte(r.spec.Val()), r.state.Val()
		}
	}
	return nil
}

// Schedules returns the schedules of a queue by name, at most limit of those whose name comes after
// another. more is whether there are further ones. It reads all names of the queue: 100,000 take Redis some 10 ms.
func (s *Store) Schedules(ctx context.Context, ns *Namespace, queue, after string,
	limit int) (list []Schedule, more bool, err error) {
	if !ValidQueue(queue) || limit < 1 {
		return nil, false, ErrBadArgument
	}
	err = s.reads.Do(ctx, func() error {
		for _, number := range ns.Shards(queue) {
			names, err := s.backend.Background.HKeys(ctx, ns.shards[number].specs(queue)).Result()
			if err != nil {
				return backend.Classify(err)
			}
			for _, name := range names {
				if name > after {
					list = append(list, Schedule{Queue: queue, Name: name})
				}
			}
		}
		slices.SortFunc(list, func(a, b Schedule) int { return strings.Compare(a.Name, b.Name) })
		if more = len(list) > limit; more {
			list = list[:limit]
		}
		for _, number := range ns.Shards(queue) {
			var here []Schedule
			var at []int
			for i, l := range list {
				if ns.ScheduleShard(queue, l.Name) == number {
					here, at = append(here, l), append(at, i)
				}
			}
			if len(here) == 0 {
				continue
			}
			if err := s.readSchedules(ctx, ns.shards[number], here); err != nil {
				return err
			}
			for k, i := range at {
				list[i] = here[k]
			}
		}
		list = slices.DeleteFunc(list, func(l Schedule) bool { return l.State == "" }) // deleted meanwhile
		return nil
	})
	return list, more, err
}

// runSchedule runs one script on the shard of a schedule and returns the status that its answer begins with.
func (s *Store) runSchedule(ctx context.Context, ns *Namespace, c *backend.Call) (int64, error) {
	if err := s.mayRun(ctx, ns); err != nil {
		return 0, err
	}
	s.backend.RunDurably(ctx, s.backend.In, []*backend.Call{c})
	if c.Err != nil {
		return 0, c.Err
	}
	status := c.Rest.Int()
	if c.Rest.Broken {
		return 0, c.Misread()
	}
	return status, nil
}

// A DueShard is a shard with schedules that are due.
type DueShard struct {
	Namespace *Namespace
	Shard     int
}

// dueShards are those that the promoter found since they were taken: it looks at each shard when something comes due there,
// so schedules cost a shard that has none one command a second in a pipeline.
type dueShards struct {
	mu   sync.Mutex
	all  map[DueShard]bool
	wake chan struct{} // has room for one signal
}

func (d *dueShards) add(s DueShard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[DueShard]bool{}
	}
	d.all[s] = true
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// SchedulesDue has a value when TakeDue returns some.
func (s *Store) SchedulesDue() <-chan struct{} { return s.due.wake }

// TakeDue returns the shards where schedules came due since the last call, while a Promoter runs.
func (s *Store) TakeDue() []DueShard {
	s.due.mu.Lock()
	defer s.due.mu.Unlock()
	list := slices.Collect(maps.Keys(s.due.all))
	clear(s.due.all)
	return list
}

// ScheduleComesDue tells that a schedule of a shard deserves a look at a time, Unix ms.
func (s *Store) ScheduleComesDue(d DueShard, at int64) { s.comesDue(d.Namespace.shards[d.Shard], at) }

// PutSchedule is one put.
type PutSchedule struct {
	Namespace   *Namespace
	Queue, Name string
	Before      string // the state as it was read; "": there was none
	Spec        []byte
	Tag         string // of Spec: the same tag is the same specification
	First       int64  // its first tick, Unix ms; 0: none
	Look        int64  // when that deserves a look, Unix ms
	GivenUp     int    // ticks of the specification before that are due and cannot be fired
	Open        int64  // when the next of those comes due, Unix ms; 0: there is none

	Result   PutResult
	Revision int64
}

// PutResult is what a put did.
type PutResult int64

// What a put did.
const (
	Created   PutResult = 1
	Replaced  PutResult = 2
	Unchanged PutResult = 3
)

var putErrors = map[int64]error{0: ErrChanged, 4: ErrTooManySchedules, 6: ErrDue, 7: ErrClosed}

// PutSchedule makes a schedule, or replaces its specification.
func (s *Store) PutSchedule(ctx context.Context, p *PutSchedule) error {
	sh, err := p.Namespace.scheduleShard(p.Queue, p.Name)
	if err != nil {
		return err
	}
	c := backend.NewCall(luajob.PutSchedule, sh.Breaker, []string{sh.Ledger, sh.states, sh.due, sh.specs(p.Queue)},
		p.Name+" "+p.Queue, p.Name, p.Before, p.Spec, p.Tag, p.First, p.Look, p.Namespace.maxSchedules, p.GivenUp, p.Open)
	status, err := s.runSchedule(ctx, p.Namespace, c)
	if err != nil {
		return err
	}
	if err := putErrors[status]; err != nil {
		return err
	}
	p.Result, p.Revision = PutResult(status), c.Rest.Int()
	if p.First > 0 {
		s.comesDue(sh, p.Look)
	}
	return c.Unconfirmed
}

// PauseSchedule stops a schedule from firing, or lets it go on. changed is false where it was so
// before; ErrEnded where it has no further tick.
func (s *Store) PauseSchedule(ctx context.Context, ns *Namespace, queue, name string,
	pause bool) (changed bool, revision int64, err error) {
	sh, err := ns.scheduleShard(queue, name)
	if err != nil {
		return false, 0, err
	}
	c := backend.NewCall(luajob.PauseSchedule, sh.Breaker, []string{sh.states, sh.due}, name+" "+queue, pause)
	status, err := s.runSchedule(ctx, ns, c)
	switch {
	case err != nil:
		return false, 0, err
	case status == 0:
		return false, 0, ErrNoSchedule
	case status == 3:
		return false, 0, ErrEnded
	}
	if !pause {
		s.comesDue(sh, c.Now)
	}
	return status == 1, c.Rest.Int(), c.Unconfirmed
}

// DeleteSchedule removes a schedule, or is ErrNoSchedule. Jobs that it published stay.
func (s *Store) DeleteSchedule(ctx context.Context, ns *Namespace, queue, name string) error {
	sh, err := ns.scheduleShard(queue, name)
	if err != nil {
		return err
	}
	c := backend.NewCall(luajob.DeleteSchedule, sh.Breaker, []string{sh.states, sh.due, sh.specs(queue)}, queue, name)
	n, err := s.runSchedule(ctx, ns, c)
	if err == nil && n == 0 {
		return ErrNoSchedule
	}
	return err
}

// deletePage is how many schedules one call of DeleteSchedules removes.
const deletePage = 500

// DeleteSchedules removes all schedules of a namespace and returns how many there were. It is for a
// namespace that is being deleted, which takes no new ones.
func (s *Store) DeleteSchedules(ctx context.Context, ns *Namespace) (deleted int64, err error) {
	for _, sh := range ns.shards {
		members, err := s.backend.Background.HKeys(ctx, sh.states).Result()
		if err = backend.Classify(err); err != nil {
			return deleted, err
		}
		for page := range slices.Chunk(members, deletePage) {
			n, err := s.deleteMembers(ctx, sh, page)
			if deleted += n; err != nil {
				return deleted, err
			}
		}
	}
	return deleted, nil
}

func (s *Store) deleteMembers(ctx context.Context, sh *shard, members []string) (deleted int64, err error) {
	names := map[string][]any{}
	for _, member := range members {
		name, queue, _ := strings.Cut(member, " ")
		names[queue] = append(names[queue], name)
	}
	var calls []*backend.Call
	for queue, list := range names {
		calls = append(calls, backend.NewCall(luajob.DeleteSchedule, sh.Breaker,
			[]string{sh.states, sh.due, sh.specs(queue)}, append([]any{queue}, list...)...))
	}
	s.backend.Run(ctx, s.backend.Background, calls)
	for _, c := range calls {
		if c.Err != nil {
			return deleted, c.Err
		}
		deleted += c.Rest.Int()
	}
	return deleted, nil
}

// Clock is the store's time, Unix ms.
func (s *Store) Clock(ctx context.Context) (ms int64, err error) { return s.backend.KnownTime(ctx) }

// CountSchedules is how many schedules a namespace has, and how many of them are active.
func (s *Store) CountSchedules(ctx context.Context, ns *Namespace) (all, active int64, err error) {
	err = s.reads.Do(ctx, func() error {
		for _, sh := range ns.shards {
			pipe := s.backend.ClientFor(ctx, sh.Ledger).Pipeline()
			states, due := pipe.HLen(ctx, sh.states), pipe.ZCard(ctx, sh.due)
			if _, err := pipe.Exec(ctx); err != nil {
				return backend.Classify(err)
			}
			all, active = all+states.Val(), active+due.Val()
		}
		return nil
	})
	return all, active, err
}

// A DueSchedule is one of a page.
type DueSchedule struct {
	Queue, Name string
	At          int64 // when it deserves a look, Unix ms
	State       string
}

// dueAhead is how far DueSchedules looks ahead, in ms, so that the caller knows how long to sleep.
const dueAhead = 1000

// DueSchedules returns the schedules of a shard that are due now, or within the next second, at most
// limit, without the first skip. now is the store's time.
func (s *Store) DueSchedules(ctx context.Context, ns *Namespace, shard, skip,
	limit int) (now int64, list []DueSchedule, err error) {
	if passed, err := s.space.Known(ns.Home); !passed || err != nil {
		return 0, nil, backend.ErrUnavailable
	}
	sh := ns.shards[shard]
	c := backend.NewCall(luajob.DuePage, sh.Breaker, []string{sh.due, sh.states}, dueAhead, skip, limit)
	s.backend.Run(ctx, s.backend.Background, []*backend.Call{c})
	if c.Err != nil {
		return 0, nil, c.Err
	}
	for n := c.More / 3; n > 0; n-- {
		member, at, state := string(c.Rest.Bulk()), c.Rest.Int(), string(c.Rest.Bulk())
		name, queue, _ := strings.Cut(member, " ")
		list = append(list, DueSchedule{queue, name, at, state})
	}
	if c.Rest.Broken {
		return 0, nil, c.Misread()
	}
	return c.Now, list, nil
}

// PutOff lets a schedule that cannot be read deserve its next look in a minute, so that it hides none behind it.
func (s *Store) PutOff(ctx context.Context, ns *Namespace, shard int, d DueSchedule, now int64) error {
	sh := ns.shards[shard]
	return backend.Classify(s.backend.ClientFor(ctx, sh.Ledger).ZAddXX(ctx, sh.due,
		redis.Z{Score: float64(now + 60_000), Member: d.Name + " " + d.Queue}).Err())
}

// A ScheduleRun is the jobs of one tick.
type ScheduleRun struct {
	Tick     int64 // Unix ms
	Cause    byte  // d due, c caught up, w waited, t triggered, b backfilled
	Messages []Message
}

// Runs is how the jobs of a schedule's runs are stored.
type Runs struct {
	Tries int
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
	Left               int64  // runs that it may have yet; -1: any
	Next, Look         int64  // the next tick and when that deserves a look, Unix ms; 0: none
	Missed, Paused     int    // ticks that count so
	Runs

	Status FireStatus
	Fired  int   // runs that were published
	First  int64 // sequence of the first job of the last of them
}

// FireStatus is what became of a Firing.
type FireStatus int64

// What becomes of a Firing.
const (
	Stale    FireStatus = 0 // the state is another one: somebody else fired, put or paused
	Fired    FireStatus = 1
	Untimely FireStatus = 2 // the plan is older than 5 s, or the clock went back behind it
	NoRoom   FireStatus = 4 // fired up to a run for which there was no room
	Closed   FireStatus = 7 // the namespace is being deleted
	Foreign  FireStatus = -1
)

// Fire fires schedules of one shard in one script call; made is the store's time at which they were planned, Unix ms. One that is
// done by somebody else, or too late, changes nothing: its Status says so. at is when it ran, by the store's clock.
func (s *Store) Fire(ctx context.Context, ns *Namespace, shard int, made int64,
	firings []*Firing) (at int64, err error) {
	if err := s.mayRun(ctx, ns); err != nil {
		return 0, err
	}
	sh := ns.shards[shard]
	var of numbers
	of.reset()
	for _, f := range firings {
		of.number(f.Queue)
	}
	keys := []string{sh.Ledger, sh.queues, sh.states, sh.due}
	for _, queue := range of.names {
		keys = append(keys, sh.ready(queue), sh.jobs(queue), sh.dead(queue))
	}
	argv := []any{ns.maxJobs, ns.maxQueues, sh.channel, s.wake, made, len(of.names)}
	for _, queue := range of.names {
		argv = append(argv, queue)
	}
	for _, f := range firings {
		argv = append(argv, of.number(f.Queue), f.Name, f.State, f.Overlap, f.Left, f.Next, f.Look, f.Missed,
			f.Paused, len(f.List))
		for _, run := range f.List {
			argv = append(argv, run.Tick, string(run.Cause), len(run.Messages))
			argv = f.appendRecords(argv, made, run.Messages)
		}
	}
	round := s.space.Round()
	c := backend.NewCall(luajob.Fire, sh.Breaker, keys, argv...)
	s.backend.RunDurably(ctx, s.backend.In, []*backend.Call{c})
	if c.Err != nil {
		return 0, c.Err
	}
	for _, f := range firings {
		f.Status, f.Fired, f.First = FireStatus(c.Rest.Int()), int(c.Rest.Int()), c.Rest.Int()
		if f.Fired > 0 {
			sh.Stored(round, f.jobs()*f.Fired/len(f.List))
		}
	}
	if c.Rest.Broken {
		return 0, c.Misread()
	}
	return c.Now, c.Unconfirmed
}

func (r *Runs) appendRecords(argv []any, now int64, messages []Message) []any {
	expires := int64(0)
	if r.TTL > 0 {
		expires = min(now+max(1, ms(r.TTL)), maxExpiry)
	}
	for _, m := range messages {
		argv = append(argv, appendRecord(nil, expires, r.Tries, "", m))
	}
	return argv
}

// Trigger publishes runs of a schedule beside its ticks.
type Trigger struct {
	Namespace   *Namespace
	Queue, Name string
	Finished    bool          // ErrUnfinished where the last run is not
	Key         string        // a repeat under it publishes nothing; "": none
	KeyTTL      time.Duration // how long that holds; 0: 2m
	Runs

	First    int64 // sequence of the first job
	Count    int   // of jobs
	Repeated bool
}

var triggerErrors = map[int64]error{
	0: ErrNoSchedule, 3: ErrUnfinished, 4: ErrTooManyJobs, 5: ErrTooManyQueues, 6: ErrTooManyKeys, 7: ErrClosed, -1: errForeign,
}

// Trigger publishes runs now.
func (s *Store) Trigger(ctx context.Context, t *Trigger) error {
	sh, err := t.Namespace.scheduleShard(t.Queue, t.Name)
	if err != nil || len(t.List) == 0 {
		return errors.Join(err, partition.ErrBroken)
	}
	keep := int64(0)
	if t.Key != "" {
		if keep = ms(t.KeyTTL); keep == 0 {
			keep = keyTTL
		}
	}
	now, err := s.backend.KnownTime(ctx)
	if err != nil {
		return backend.Wrap(backend.ErrUnavailable, err) // nothing was published
	}
	ns := t.Namespace
	sum := sha256.Sum256([]byte(t.Name + " " + t.Key))
	keys := []string{sh.Ledger, sh.queues, sh.states, sh.Prefix + "run:" + t.Queue + ":" + hex.EncodeToString(sum[:16]),
		sh.ready(t.Queue), sh.jobs(t.Queue), sh.dead(t.Queue)}
	argv := []any{ns.maxJobs, ns.maxQueues, ns.maxKeys, sh.channel, s.wake, t.Queue, t.Name, t.Finished, keep, len(t.List[0].Messages)}
	for _, run := range t.List {
		argv = t.appendRecords(append(argv, run.Tick, string(run.Cause)), now, run.Messages)
	}
	round := s.space.Round()
	c := backend.NewCall(luajob.Trigger, sh.Breaker, keys, argv...)
	status, err := s.runSchedule(ctx, ns, c)
	if err != nil {
		return err
	}
	if err := triggerErrors[status]; err != nil {
		return err
	}
	t.First, t.Count, t.Repeated = c.Rest.Int(), int(c.Rest.Int()), status == 2
	if !t.Repeated {
		sh.Stored(round, t.Count)
	}
	return c.Unconfirmed
}
