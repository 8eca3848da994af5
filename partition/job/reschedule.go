package job

import (
	"context"
	"strconv"
	"time"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition"
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

// ReleaseUnique ends what a publish says to be unique, before its time: a job under it is stored again, under an id once the
// one before is gone. released is whether there was anything. In Policy.MaxKeys it counts to the end of its time.
func (s *Store) ReleaseUnique(ctx context.Context, p *Publish) (released bool, err error) {
	if !partition.ValidQueue(p.Queue) || p.Unique == 0 || len(p.UniqueKey) > MaxUniqueKey || p.UniqueKey == "" && !ValidCallerID(p.CallerID) {
		return false, ErrBadArgument
	}
	if err := s.mayRun(p.Namespace); err != nil {
		return false, err
	}
	sh := p.Namespace.shardAt(p.Namespace.HomeOf(p, 0))
	n, err := s.backend.ClientFor(ctx, sh.Ledger).Del(ctx, string(sh.appendResult(nil, p.Queue, p.uniqueKey()))).Result()
	return n > 0, backend.Classify(err)
}

const dueNow = -2 // for the script: due now, whatever became of it before

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

// rescheduled are the keys that a reschedule takes of a queue.
func (sh *shard) rescheduled(queue string) []string {
	return []string{sh.delay, sh.attempts, sh.jobs(queue), sh.lease, sh.dead(queue)}
}
