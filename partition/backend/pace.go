package backend

import (
	"context"
	"time"

	"github.com/spillway-io/spillway/partition/share"
)

// Work for operators that goes through a whole namespace takes at most a fifth of Redis's
// time: after a call it rests for paceFactor times as long as the call took.
const (
	paceFactor = 4
	maxRest    = time.Second // also after a call that nobody answered
)

// A Pace keeps such work of this process slow, however many operators ask for it: its calls
// run one at a time, those of a tenant in turn with those of others.
type Pace struct {
	turn *share.Turns
	rest time.Time // when the next call may begin; only who has the turn uses it
}

// NewPace makes a Pace without a rest.
func NewPace() *Pace { return &Pace{turn: share.NewTurns(1, maxQueue)} }

// Do runs call after the rest that its predecessor earned. It returns the error of ctx where
// that ends before, and ErrTooManyReads where many of the tenant wait; then call did not run.
// call gets a context that does not end with ctx, because a script that is cut off has an
// unknown outcome. The time-outs of the connection bound it.
func (p *Pace) Do(ctx context.Context, call func(context.Context)) error {
	err := ErrTooManyReads
	if !p.turn.Do(ctx, func() { err = p.do(ctx, call) }) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (p *Pace) do(ctx context.Context, call func(context.Context)) error {
	if wait := time.Until(p.rest); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	began := time.Now()
	call(context.WithoutCancel(ctx))
	ended := time.Now()
	p.rest = ended.Add(min(maxRest, paceFactor*ended.Sub(began)))
	return nil
}
