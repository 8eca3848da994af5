package job

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

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

// path is what the schedules of a namespace are ordered by.
func (s Schedule) path() string { return s.Queue + "/" + s.Name }

// The errors of schedules.
var (
	// ErrNoSchedule: the queue has no schedule of that name.
	ErrNoSchedule = errors.New("no such schedule")
	// ErrTooManySchedules: a further schedule beyond Policy.MaxSchedules. Nothing was stored.
	ErrTooManySchedules = errors.New("too many schedules")
	// ErrUnfinished: a job of the schedule's last run is neither ended nor dead. Nothing was
	// published.
	ErrUnfinished = errors.New("the last run is unfinished")
	// ErrEnded: the schedule has no further tick.
	ErrEnded = errors.New("the schedule has ended")
	// ErrChanged: the state is not the one that the caller read. Nothing was done: read it again.
	ErrChanged = errors.New("the schedule has changed since it was read")
	// ErrOtherOwner: the schedule belongs to an owner that the caller does not name. Nothing
	// was done.
	ErrOtherOwner = errors.New("the schedule belongs to another owner")
	// ErrOldVersion: the owner is registered with a newer version, or not at all any more.
	// Nothing was done.
	ErrOldVersion = errors.New("a newer version of the owner is registered")
	// ErrNoOwner: no such owner is registered.
	ErrNoOwner = errors.New("no such owner")
	// ErrDue: a tick came due since the caller read the state. Nothing was done: fire it first.
	ErrDue = errors.New("a tick of the schedule has come due")
)

// ScheduleShard is the shard that has the schedules of a queue, also of one that is spread: its
// first one, which stays the same when the spread rises.
func (n *Namespace) ScheduleShard(queue string) int { return n.Shards(queue)[0] }

func (n *Namespace) scheduleShard(queue, name string) (*shard, error) {
	if n == nil || !partition.ValidQueue(queue) || !partition.ValidScheduleName(name) {
		return nil, ErrBadArgument
	}
	return n.shardAt(n.ScheduleShard(queue)), nil
}

// scheduler has the schedules of a Store.
type scheduler struct{ *core }

// GetSchedule returns a schedule, or ErrNoSchedule.
func (s *scheduler) GetSchedule(ctx context.Context, ns *Namespace,
	queue, name string) (Schedule, error) {
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

// ReadSpecs reads the specifications and states of schedules of one shard. Those of one that is
// gone are empty.
func (s *scheduler) ReadSpecs(ctx context.Context, ns *Namespace, shard int, list []Schedule) error {
	return s.readSchedules(ctx, ns.shardAt(shard), list)
}

// readSchedules reads states and specifications of schedules. It is no transaction: a Redis that is full rejects all that
// stands in one, and a schedule could not be deleted. A state is read before its specification, so the latter may be the newer
// one; whatever is written on the strength of both is rejected then, because the state has changed.
func (s *scheduler) readSchedules(ctx context.Context, sh *shard, list []Schedule) error {
	type reads struct{ spec, state *redis.StringCmd }
	pipe := s.backend.Background.Pipeline()
	all := make([]reads, len(list))
	for i, l := range list {
		all[i].state = pipe.HGet(ctx, sh.states, l.Name+" "+l.Queue)
		all[i].spec = pipe.HGet(ctx, sh.specs(l.Queue), l.Name)
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

// Schedules returns the schedules of a queue by name, at most limit of those whose name comes
// after another. Without a queue they are those of the namespace, by queue and name, after
// "queue/name". more is whether there are further ones. It reads all names of the queue:
// 100,000 take Redis some 10 ms.
func (s *scheduler) Schedules(ctx context.Context, ns *Namespace, queue, after string,
	limit int) (list []Schedule, more bool, err error) {
	if queue != "" && !partition.ValidQueue(queue) || limit < 1 {
		return nil, false, ErrBadArgument
	}
	// Reading all names takes Redis long, so lists are read one at a time, with rests: whoever
	// asks for many waits.
	waited := s.pace.Do(ctx, func(ctx context.Context) {
		list, more, err = s.listSchedules(
			ctx,
			ns,
			queue,
			after,
			limit,
		)
	})
	return list, more, cmp.Or(waited, err)
}

func (s *scheduler) listSchedules(ctx context.Context, ns *Namespace, queue, after string,
	limit int) (list []Schedule, more bool, err error) {
	shards := ns.scheduleShards(queue)
	for _, number := range shards {
		names, err := s.scheduleNames(ctx, ns.shardAt(number), queue)
		if err != nil {
			return nil, false, err
		}
		for _, l := range names {
			if queue != "" && l.Name > after || queue == "" && l.path() > after {
				list = append(list, l)
			}
		}
	}
	slices.SortFunc(list, func(a, b Schedule) int { return strings.Compare(a.path(), b.path()) })
	if more = len(list) > limit; more {
		list = list[:limit]
	}
	for _, number := range shards {
		var here []Schedule
		var at []int
		for i, l := range list {
			if ns.ScheduleShard(l.Queue) == number {
				here, at = append(here, l), append(at, i)
			}
		}
		if len(here) == 0 {
			continue
		}
		if err := s.readSchedules(ctx, ns.shardAt(number), here); err != nil {
			return nil, false, err
		}
		for k, i := range at {
			list[i] = here[k]
		}
	}
	list = slices.DeleteFunc(list, func(l Schedule) bool { return l.State == "" }) // deleted meanwhile
	return list, more, nil
}

// scheduleShards are the shards that have the schedules of a queue, or of all queues where it
// is empty.
func (n *Namespace) scheduleShards(queue string) []int {
	if queue != "" {
		return []int{n.ScheduleShard(queue)}
	}
	var all []int
	for _, sh := range n.all() {
		all = append(all, sh.Number)
	}
	return all
}

// namesOf is the hash whose fields name the schedules of a queue, or of the shard where queue
// is empty.
func (sh *shard) namesOf(queue string) string {
	if queue != "" {
		return sh.specs(queue)
	}
	return sh.states
}

// scheduleNames names the schedules of a queue, or of a shard where queue is empty.
func (s *scheduler) scheduleNames(ctx context.Context, sh *shard,
	queue string) (list []Schedule, err error) {
	members, err := s.backend.Background.HKeys(ctx, sh.namesOf(queue)).Result()
	if err != nil {
		return nil, backend.Classify(err)
	}
	for _, member := range members {
		l := Schedule{Queue: queue, Name: member}
		if queue == "" {
			l.Name, l.Queue, _ = strings.Cut(member, " ")
		}
		list = append(list, l)
	}
	return list, nil
}

// runSchedule runs one script on the shard of a schedule, or of a job, and returns the status
// that its answer begins with.
func (s *scheduler) runSchedule(ctx context.Context, ns *Namespace, c *backend.Call) (int64, error) {
	if err := s.mayRun(ns); err != nil {
		return 0, err
	}
	backend.RunOne(ctx, c, func(calls []*backend.Call) { s.backend.RunDurably(ctx, s.backend.In, calls) })
	if c.Err != nil {
		return 0, c.Err
	}
	status := c.Rest.Int()
	if c.Rest.Broken {
		return 0, c.Misread()
	}
	return status, nil
}

// PutSchedule is one put.
type PutSchedule struct {
	Namespace   *Namespace
	Queue, Name string
	Before      string // the state as it was read; "": there was none
	Spec        []byte
	Owner       string // that Spec names; "": none
	Version     int64  // of Owner
	Tag         string // of Spec: the same tag is the same specification
	First       int64  // its first tick, Unix ms; 0: none
	Look        int64  // when that deserves a look, Unix ms
	GivenUp     int    // ticks of the specification before that are over and cannot be fired, or were paused
	Open        int64  // when the next of those comes due, Unix ms; 0: there is none
	Past        string // see package schedule
	Paused      bool   // the schedule is
	Waits       bool   // one of its ticks does, and is given up, too

	Result   PutResult
	Revision int64
}

// version is that of the owner, as the script wants it.
func (p *PutSchedule) version() any {
	if p.Owner == "" {
		return ""
	}
	return p.Version
}

// PutResult is what a put did.
type PutResult int64

// What a put did.
const (
	Created   PutResult = 1
	Replaced  PutResult = 2
	Unchanged PutResult = 3
)

func (r PutResult) String() string { return [...]string{"", "created", "replaced", "unchanged"}[r] }

var putErrors = map[int64]error{0: ErrChanged, 4: ErrTooManySchedules, 6: ErrDue, 7: ErrClosed, 9: ErrOldVersion}

// PutSchedule makes a schedule, or replaces its specification.
func (s *scheduler) PutSchedule(ctx context.Context, p *PutSchedule) error {
	sh, err := p.Namespace.scheduleShard(p.Queue, p.Name)
	if err != nil {
		return err
	}
	c := backend.NewCall(
		luajob.PutSchedule,
		sh.Breaker,
		[]string{sh.Ledger, sh.states, sh.due, sh.specs(p.Queue), sh.ownedOr(p.Owner)},
		p.Name+" "+p.Queue,
		p.Name,
		p.Before,
		p.Spec,
		p.Tag,
		p.First,
		p.Look,
		p.Namespace.part(p.Namespace.Policy.MaxSchedules),
		p.GivenUp,
		p.Open,
		p.version(),
		p.Past,
	)
	status, err := s.runSchedule(ctx, p.Namespace, c)
	if err != nil {
		return err
	}
	if err := putErrors[status]; err != nil {
		return err
	}
	p.Result, p.Revision = PutResult(status), c.Rest.Int()
	if p.Result == Replaced {
		sh.schedules.leave(p)
	}
	if p.First > 0 {
		s.comesDue(sh, p.Look)
	}
	return c.Unconfirmed
}

// PauseSchedule stops a schedule from firing, or lets it go on. changed is false where it was so
// before; ErrEnded where it has no further tick.
func (s *scheduler) PauseSchedule(ctx context.Context, ns *Namespace, queue, name string,
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

// DeleteSchedule removes a schedule whose specification names that owner, "" for none; or is
// ErrNoSchedule, or ErrOtherOwner. below is the version that must have put it at most, without
// itself; -1: any. Jobs that it published stay.
func (s *scheduler) DeleteSchedule(ctx context.Context, ns *Namespace, queue, name, owner string,
	below int64) error {
	sh, err := ns.scheduleShard(queue, name)
	if err != nil {
		return err
	}
	c := backend.NewCall(luajob.DeleteSchedule, sh.Breaker,
		[]string{sh.states, sh.due, sh.specs(queue), sh.ownedOr(owner)}, queue, owner, below, name)
	n, err := s.runSchedule(ctx, ns, c)
	switch {
	case err != nil:
		return err
	case c.Rest.Int() > 0:
		return ErrOtherOwner
	case n == 0:
		return ErrNoSchedule
	}
	return nil
}

// Clock is the time of the server that has the schedules of a queue, Unix ms: not an estimate,
// by which a tick may be due that is not.
func (s *scheduler) Clock(ctx context.Context, ns *Namespace, queue string) (ms int64, err error) {
	if !partition.ValidQueue(queue) {
		return 0, ErrBadArgument
	}
	if err := s.mayRun(ns); err != nil {
		return 0, err
	}
	sh := ns.shardAt(ns.ScheduleShard(queue))
	c := backend.NewCall(luajob.DuePage, sh.Breaker, []string{sh.due, sh.states}, 0, 0, 1)
	s.backend.Run(ctx, s.backend.Background, []*backend.Call{c})
	return c.Now, c.Err
}

// CountSchedules is how many schedules a namespace has.
func (s *scheduler) CountSchedules(ctx context.Context, ns *Namespace) (n int64, err error) {
	err = s.reads.Do(ctx, func() error {
		for _, sh := range ns.all() {
			here, err := s.backend.Background.HLen(ctx, sh.states).Result()
			if err != nil {
				return backend.Classify(err)
			}
			n += here
		}
		return nil
	})
	return n, err
}

var triggerErrors = map[int64]error{
	0: ErrNoSchedule, 3: ErrUnfinished, 4: ErrTooManyJobs, 5: ErrTooManyQueues, 6: ErrTooManyKeys, 7: ErrClosed, -1: errForeign,
}
