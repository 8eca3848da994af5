package backend

import (
	"context"
	"time"
)

// Work for operators that goes through a whole namespace takes at most a fifth of Redis's
// time: after a call it rests for paceFactor times as long as the call took.
const (
	paceFactor = 4
	maxRest    = time.Second // also after a call that nobody answered
)

// A Pace keeps such work of this process slow, however many operators ask for it: its calls
// run one at a time.
type Pace struct {
	turn chan struct{}
	rest time.Time // when the next call may begin; only who has the turn uses it
}

// NewPace makes a Pace without a rest.
func NewPace() *Pace { return &Pace{turn: make(chan struct{}, 1)} }

// Do runs call after the rest that its predecessor earned. It returns the error of ctx
// where that ends before; then call did not run. call gets a context that does
// not end with ctx, because a script that is cut off has an unknown outcome. The time-outs
// of the connection bound it.
func (p *Pace) Do(ctx context.Context, call func(context.Context)) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.turn }()
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
