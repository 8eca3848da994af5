package job

import (
	"context"
	"time"

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

	Due int64 // Unix ms when the job is ready
}

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
	argv := []any{r.Queue, r.Ref.text(), delay}
	if r.Payload != nil {
		argv = append(argv, r.Payload)
	}
	c := backend.NewCall(luajob.Reschedule, sh.Breaker,
		[]string{sh.delay, sh.attempts, sh.jobs(r.Queue), sh.lease, sh.dead(r.Queue)}, argv...)
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
	s.note(r.Namespace, sh.Number, r.Queue, r.Ref.Seq, TraceEvent{AtMS: c.Now, Event: "rescheduled"})
	return c.Unconfirmed
}
