package job

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition/backend"
)

// Reschedule gives a delayed job that was never claimed another due time, another payload, or both.
type Reschedule struct {
	Namespace *Namespace
	Queue     string
	Ref       Ref
	// Delay is how long it waits from now on, 0 to MaxDelay; nil: as before.
	Delay *time.Duration
	// Payload is the new one; nil: as before. Attributes, tries and expiry stay.
	Payload []byte
	// Unique is the publish that it was a double of: what that says to be unique is so for as long from now on.
	Unique *Publish
	// Promote makes it ready now, also one that was claimed before. Delay and Payload mean nothing then.
	Promote bool

	Due int64 // Unix ms when the job is ready
}

const (
	dueNow  = -2 // for the script: due now, whatever became of it before
	passNow = -3 // and where it waits for a slot
	// maxPassed is how many jobs of a group look for a slot where there is no limit any more; the promoter looks at the others
	// within minutes.
	maxPassed = 10_000
)

var rescheduleErrors = map[int64]error{0: ErrNoJob, 2: ErrNotDelayed, 3: ErrExpiresBefore}

// Reschedule runs one change. A full store rejects another payload, ErrFull, and not another time.
func (s *Store) Reschedule(ctx context.Context, r *Reschedule) error {
	sh, err := s.findJob(ctx, r.Namespace, r.Queue, r.Ref)
	if err != nil {
		return err
	}
	delay := int64(-1)
	if r.Delay != nil {
		if *r.Delay < 0 || *r.Delay > MaxDelay {
			return ErrBadArgument
		}
		delay = ms(*r.Delay)
	}
	if r.Promote {
		delay = dueNow
	}
	keys := sh.rescheduled(r.Queue)
	window := int64(0)
	if r.Unique != nil {
		window = max(1, ms(r.Unique.Unique))
		keys = append(keys, sh.Ledger, string(sh.appendResult(nil, r.Queue, r.Unique.uniqueKey())))
	}
	argv := []any{r.Queue, r.Ref.text(), delay, window}
	if r.Payload != nil && !r.Promote {
		argv = append(argv, r.Payload)
	}
	c := backend.NewCall(luajob.Reschedule, sh.Breaker, keys, argv...)
	status, err := s.runSchedule(ctx, r.Namespace, c)
	if err != nil {
		return err
	}
	if err := rescheduleErrors[status]; err != nil {
		return err
	}
	if r.Due = c.Rest.Int(); c.Rest.Broken {
		return c.Misread()
	}
	if delay >= 0 {
		s.comesDue(sh, r.Due)
	}
	event := "rescheduled"
	if r.Promote {
		event = "promoted"
		s.promote(ctx, place{r.Namespace, sh}, r.Queue, r.Ref)
	}
	s.note(r.Namespace, r.Queue, r.Ref, TraceEvent{AtMS: c.Now, Event: event})
	return c.Unconfirmed
}

// promote makes a job that is due ready. Should it fail, the promoter does it a moment later.
func (s *Store) promote(ctx context.Context, at place, queue string, ref Ref) {
	p := page{place: at, groups: map[string]*duePerQueue{queue: {delayed: []string{strconv.FormatInt(ref.Seq, 10)}}}}
	s.comesDue(at.sh, 0)
	s.backend.Run(ctx, s.backend.In, []*backend.Call{p.call(s, []string{queue})})
}

// passHeld has jobs that wait for a slot look for one where the limits of a namespace are others than they know of: once for all
// changes that came meanwhile. mu is held.
func (p *Promoter) passHeld(ctx context.Context, looks *sync.WaitGroup, changed []*Namespace) {
	for _, ns := range changed {
		was := ns.passed.Load()
		switch {
		case ns.Rest() > 0:
			ns.passed.Store(ns) // others do it
		case !p.passing[ns.home]:
			p.passing[ns.home] = true
			looks.Go(func() {
				done := true
				for _, sh := range ns.all() {
					done = p.store.letPass(ctx, place{ns, sh}, was) && done
				}
				if done {
					ns.passed.Store(ns)
				}
				p.mu.Lock()
				delete(p.passing, ns.home)
				p.mu.Unlock()
			})
		}
	}
}

// letPass makes jobs of a shard ready that wait for a slot: of each group the oldest, as many as its new limit lets pass. was is the
// namespace under the policy that they know, nil: unknown. It reports whether Redis answered.
func (s *Store) letPass(ctx context.Context, at place, was *Namespace) bool {
	from, before, room := "-", "", 0
	for {
		page, err := s.backend.Background.ZRangeArgs(ctx, redis.ZRangeArgs{
			Key: at.sh.parked, ByLex: true, Start: from, Stop: "+", Count: 128}).Result()
		if err != nil || len(page) == 0 {
			return err == nil || backend.IsWrongType(err)
		}
		for _, member := range page {
			from = "(" + member
			queue, group, seq, ok := parkedJob(member)
			if !ok { // something else wrote it
				continue
			}
			if was != nil && at.ns.SameLimit(was, queue) {
				from = "(" + queue + "!" // behind all of the queue
				break
			}
			if prefix := member[:strings.LastIndexByte(member, ' ')+1]; prefix != before {
				if room, err = s.slotsLeft(ctx, at, queue, group); err != nil {
					return backend.IsWrongType(err)
				}
				before = prefix
			}
			if room--; room < 0 {
				from = "(" + before + ":" // behind all of the group
				break
			}
			if !s.pass(ctx, at, queue, seq) {
				return false
			}
		}
	}
}

// parkedJob reads a member of the key parked: "<queue> <length> <group> <sequence>".
func parkedJob(member string) (queue, group string, seq int64, ok bool) {
	queue, rest, _ := strings.Cut(member, " ")
	_, rest, _ = strings.Cut(rest, " ")
	cut := strings.LastIndexByte(rest, ' ')
	if cut < 0 {
		return "", "", 0, false
	}
	seq, err := strconv.ParseInt(rest[cut+1:], 10, 64)
	return queue, rest[:cut], seq, err == nil
}

// slotsLeft is how many more jobs of a group may be leased: maxPassed where the queue has no limit any more.
func (s *Store) slotsLeft(ctx context.Context, at place, queue, group string) (int, error) {
	most := at.ns.concurrency(queue).Concurrency
	if most == 0 {
		return maxPassed, nil
	}
	used, err := s.backend.Background.HGet(ctx, at.sh.slots, "#"+queue+" "+group).Int()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return most - used, err
}

// pass makes a job ready that waits for a slot; where it does not wait any more, it does nothing. It reports whether Redis answered.
func (s *Store) pass(ctx context.Context, at place, queue string, seq int64) bool {
	c := backend.NewCall(luajob.Reschedule, at.sh.Breaker, at.sh.rescheduled(queue), queue, seq, passNow, 0)
	if s.paced(ctx, c) != nil {
		return false
	}
	if c.Rest.Int() == 1 {
		s.promote(ctx, at, queue, Ref{Shard: at.sh.Number, Seq: seq})
	}
	return true
}

// rescheduled are the keys that a reschedule takes of a queue.
func (sh *shard) rescheduled(queue string) []string {
	return []string{sh.delay, sh.attempts, sh.jobs(queue), sh.lease, sh.dead(queue)}
}
