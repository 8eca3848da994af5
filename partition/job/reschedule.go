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
	keys := []string{sh.delay, sh.attempts, sh.jobs(r.Queue), sh.lease, sh.dead(r.Queue)}
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
				for _, sh := range ns.open() {
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
	from, group, room := "-", "", 0
	for {
		page, err := s.backend.Background.ZRangeArgs(ctx, redis.ZRangeArgs{
			Key: at.sh.Prefix + "parked", ByLex: true, Start: from, Stop: "+", Count: 128}).Result()
		if err != nil || len(page) == 0 {
			return err == nil || backend.IsWrongType(err)
		}
		for _, member := range page { // "<queue> <length> <group> <sequence>"
			from = "(" + member
			cut := strings.LastIndexByte(member, ' ') + 1
			queue, rest, _ := strings.Cut(member[:cut], " ")
			seq, err := strconv.ParseInt(member[cut:], 10, 64)
			if err != nil || strings.Count(member, " ") < 3 { // something else wrote it
				continue
			}
			if was != nil && at.ns.SameLimit(was, queue) {
				from = "(" + queue + "!" // behind all of the queue
				break
			}
			if group != member[:cut] {
				group, room = member[:cut], maxPassed
				if most := at.ns.concurrency(queue).Concurrency; most > 0 {
					_, name, _ := strings.Cut(strings.TrimSuffix(rest, " "), " ")
					used, err := s.backend.Background.HGet(ctx, at.sh.Prefix+"slots", "#"+queue+" "+name).Int()
					if err != nil && !errors.Is(err, redis.Nil) {
						return backend.IsWrongType(err)
					}
					room = most - used
				}
			}
			if room--; room < 0 {
				from = "(" + group + ":" // behind all of the group
				break
			}
			c := backend.NewCall(luajob.Reschedule, at.sh.Breaker,
				[]string{at.sh.delay, at.sh.attempts, at.sh.jobs(queue), at.sh.lease, at.sh.dead(queue)}, queue, seq, passNow, 0)
			if s.paced(ctx, c) != nil {
				return false
			}
			if c.Rest.Int() == 1 {
				s.promote(ctx, at, queue, Ref{Shard: at.sh.Number, Seq: seq})
			}
		}
	}
}
