package job

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// A Prepare makes the jobs of a publish wait for the commit of their publisher, which it sends
// once what it does elsewhere is done. Who says nothing is asked.
type Prepare struct {
	// Check is the queue that gets a job for each question, a FollowUp with the event
	// "prepared"; "": nobody is asked, and Checks is 0.
	Check string
	// After is how long the publisher has until it is asked, or the job is dead: MinCheckAfter to
	// MaxCheckAfter. Each further question waits twice as long, an hour at most.
	After time.Duration
	// Checks is how often it is asked, to MaxChecks, before the job is dead, Undecided.
	Checks int
}

// Bounds of a Prepare.
const (
	MinCheckAfter = time.Second
	MaxCheckAfter = 24 * time.Hour
	MaxChecks     = 100
)

func (p *Prepare) bad() bool {
	return p.After < MinCheckAfter || p.After > MaxCheckAfter || p.Checks < 0 || p.Checks > MaxChecks ||
		(p.Check == "") != (p.Checks == 0) || p.Check != "" && !partition.ValidQueue(p.Check)
}

// waits is how long the jobs of a publish are in the set of delayed ones, at first.
func (p *Publish) waits() int64 {
	if p.Prepare != nil {
		return ms(p.Prepare.After)
	}
	return ms(p.Delay)
}

// watched is what the scripts keep of a publish until its jobs end; "": nothing.
func (p *Publish) watched() string {
	switch {
	case p.Prepare != nil:
		return fmt.Sprintf("p%d %d %d %s\n", ms(p.Prepare.After), p.Prepare.Checks, ms(p.Delay), p.Prepare.Check) +
			onEnd("", p.OnEnd, p.CallerID)
	case p.OnEnd != "":
		return onEnd("", p.OnEnd, p.CallerID)
	}
	return ""
}

var (
	// ErrPrepared: the job waits for its publisher, and only a commit or rollback changes it.
	// Nothing was changed.
	ErrPrepared = errors.New("the job is prepared")
	// ErrNotPrepared: the job is not, or not any more, prepared. Nothing was changed.
	ErrNotPrepared = errors.New("the job is not prepared")
	// ErrDecided: the opposite was decided before. Nothing was changed.
	ErrDecided = errors.New("the opposite was decided before")
)

// A Decision commits a prepared job, or rolls it back. The first one stands, and is known for
// DecisionTTL.
type Decision struct {
	Namespace *Namespace
	Queue     string
	Ref       Ref
	Rollback  bool // delete the job, instead of making it ready when its delay, from its publish on, is over

	State State // that the job is in now: Ready, Delayed, or Gone after a rollback and for a repeat
	Due   int64 // Unix ms when a Delayed one is ready
}

// DecisionTTL is how long decisions are known, as idempotency keys of the namespace, as long as
// it may have more.
const DecisionTTL = 24 * time.Hour

var decideErrors = map[int64]error{0: ErrNoJob, 3: ErrDecided, 4: ErrNotPrepared}

// Decide runs one decision. A full store does not reject it.
func (s *Store) Decide(ctx context.Context, d *Decision) error {
	sh, err := s.findJob(ctx, d.Namespace, d.Queue, d.Ref)
	if err != nil {
		return err
	}
	verb, event := "commit", "committed"
	if d.Rollback {
		verb, event = "rollback", "rolled_back"
	}
	keys := []string{sh.Ledger, sh.lease, sh.attempts, sh.queues, sh.delay, sh.tombstones,
		sh.ready(d.Queue), sh.jobs(d.Queue), sh.dead(d.Queue), sh.ids(d.Queue),
		string(sh.appendResult(nil, d.Queue, "decide "+strconv.FormatInt(d.Ref.Seq, 10)))}
	c := backend.NewCall(luajob.Decide, sh.Breaker, keys, d.Queue, d.Ref.text(), verb, ms(DecisionTTL),
		d.Namespace.part(d.Namespace.Policy.MaxKeys), sh.channel, s.wake)
	c.Spare = &sh.ends
	status, err := s.runSchedule(ctx, d.Namespace, c)
	if err != nil {
		return err
	}
	if err := decideErrors[status]; err != nil {
		return err
	}
	if d.Due = c.Rest.Int(); c.Rest.Broken {
		return c.Misread()
	}
	if status != 2 {
		s.note(d.Namespace, d.Queue, d.Ref, TraceEvent{AtMS: c.Now, Event: event})
	}
	switch {
	case status == 2:
	case d.Rollback:
		s.ended(d.Namespace, d.Ref.Shard)
	case d.Due > 0:
		d.State = Delayed
		s.comesDue(sh, d.Due)
	default:
		d.State = Ready
	}
	return c.Unconfirmed
}
