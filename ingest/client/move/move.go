// Package move moves the jobs of a queue into another, of any namespace and kind, as a client of the
// data port: who may not publish cannot move. A job takes along all that is to come of it; what its target cannot hold
// ends the move, with the job where it was. Idempotency keys and unique keys stay with the queue that they were sent to.
package move

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	spillway "github.com/spillway-io/spillway/ingest/client"
)

// Move is a move of the ready jobs of a queue. What it had in hand when it ended comes again after a
// minute, and is moved once.
type Move struct {
	From, To      *spillway.Queues
	Queue, Target string // of From, and of To
	Count         int64  // jobs to move in Per; 0: as fast as they are claimed
	Per           time.Duration
	Follow        bool // go on, and move what becomes ready

	Moved, Before atomic.Int64 // jobs so far; Before: they were moved by an earlier run

	php     bool      // the target is PHP's
	claimed time.Time // when the jobs in hand were
}

// How a move works.
const (
	moveBatch = 100             // jobs in hand at once
	moveTTR   = time.Minute     // their lease
	moveWait  = 5 * time.Second // for the next, with --follow
	moveKey   = 24 * time.Hour  // how long a repeat of a move stores nothing
	publishes = 16              // at once
)

// Run moves until there are no more jobs, or with Follow until ctx ends, with its error.
func (m *Move) Run(ctx context.Context) error {
	o := spillway.ClaimOptions{Count: moveBatch, TTR: moveTTR, OnEnd: true}
	if m.Follow {
		o.Wait = moveWait
	}
	if m.Count > 0 {
		o.Count = int(min(moveBatch, max(1, m.Count*int64(time.Second)/int64(m.Per)/4)))
	}
	for ctx.Err() == nil {
		began := time.Now()
		jobs, err := m.From.Claim(ctx, []string{m.Queue}, o)
		m.claimed = time.Now()
		switch {
		case err != nil:
			return err
		case len(jobs) == 0 && !m.Follow:
			return nil
		}
		if err := m.all(context.WithoutCancel(ctx), jobs); err != nil { // what is in hand is finished
			return err
		}
		if m.Count > 0 {
			pause := time.Until(began.Add(m.Per * time.Duration(len(jobs)) / time.Duration(m.Count)))
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
	return ctx.Err()
}

// all moves jobs, and gives those back that the target did not take.
func (m *Move) all(ctx context.Context, jobs []spillway.Job) error {
	if !m.php { // the first learns what the target is
		if err := m.one(ctx, jobs[0]); err != nil {
			return m.giveBack(ctx, jobs, err)
		}
		jobs = jobs[1:]
	}
	errs := make([]error, len(jobs))
	slots := make(chan struct{}, publishes)
	var moving sync.WaitGroup
	for i := range jobs {
		slots <- struct{}{}
		moving.Go(func() {
			defer func() { <-slots }()
			errs[i] = m.one(ctx, jobs[i])
		})
	}
	moving.Wait()
	var failed []spillway.Job
	for i, err := range errs {
		if err != nil {
			failed = append(failed, jobs[i])
		}
	}
	if len(failed) > 0 {
		return m.giveBack(ctx, failed, errors.Join(errs...))
	}
	return nil
}

// giveBack requeues the jobs that were not moved, the last first, so that they keep their order.
func (m *Move) giveBack(ctx context.Context, jobs []spillway.Job, err error) error {
	for i := len(jobs) - 1; i >= 0; i-- {
		if back := m.From.Requeue(ctx, jobs[i]); back != nil && !errors.Is(back, spillway.ErrGone) {
			return errors.Join(err, back)
		}
	}
	return err
}

// keyOf names a job the same way in each run. A job of kind queue has one id for ever. A delivery of
// PHP's has another each time, so there the payload's own id stands for it.
func (m *Move) keyOf(j spillway.Job) string {
	if j.PHP == nil {
		return "move:" + j.ID
	}
	id := j.PHP.ID
	if id == "" {
		sum := sha256.Sum256(j.Payload)
		id = hex.EncodeToString(sum[:16])
	}
	return fmt.Sprintf("php:%.100s", id)
}

// one publishes a job, and ends it where it was. A repeat stores nothing. Of PHP's, a payload with the same id that
// was never delivered is another job, such as one that queue:retry pushed; one that was delivered
// before, or whose first answer was lost, may be either, and is buried rather than lost or doubled.
func (m *Move) one(ctx context.Context, j spillway.Job) error {
	key := m.keyOf(j)
	published, err := m.publish(ctx, j, key)
	if err == nil && published.Repeated && !published.Retried && j.PHP != nil && j.Attempt == 1 {
		published, err = m.publish(ctx, j, key+":"+j.ID)
		published.Repeated = false // of this delivery alone
	}
	switch {
	case errors.Is(err, spillway.ErrUnknown):
		return m.mayBeThere(ctx, j, err)
	case err != nil:
		return err
	case published.Exists:
		return fmt.Errorf("job %s: the other queue has one of the same id: it stays where it is", j.ID)
	}
	if published.Repeated {
		m.Before.Add(1)
		if j.PHP != nil {
			return ended(m.From.Bury(ctx, j, nil))
		}
	} else {
		m.Moved.Add(1)
	}
	return m.mayBeThere(ctx, j, ended(m.From.Moved(ctx, j)))
}

// mayBeThere gives a job of PHP's back, counted, that failed with err when the target may have it.
// Requeued it would look as if it had never been delivered, and the next run would double it.
func (m *Move) mayBeThere(ctx context.Context, j spillway.Job, err error) error {
	if err == nil || j.PHP == nil {
		return err
	}
	return errors.Join(err, ended(m.From.Release(ctx, j, 0)))
}

// ended is nil where the lease was over: the job comes again, and is moved once.
func ended(err error) error {
	if errors.Is(err, spillway.ErrGone) {
		return nil
	}
	return err
}

func (m *Move) publish(ctx context.Context, j spillway.Job, key string) (spillway.Published, error) {
	if !m.php {
		_, id, _ := strings.Cut(j.ID, "-")
		o := spillway.PublishOptions{
			Tries:      j.Tries,
			ID:         id,
			Attributes: j.Attributes,
			OnEnd:      j.OnEnd,
			Moved:      true,
			Key:        key,
			Dedup:      moveKey,
		}
		if j.Left > 0 {
			o.TTL = max(time.Millisecond, j.Left-time.Since(m.claimed))
		}
		p, err := m.To.Publish(ctx, m.Target, j.Payload, o)
		var said *spillway.Error
		if !errors.As(err, &said) || said.Code != "bad_parameter" {
			return p, err
		}
		m.php = true
	}
	if j.PHP == nil && (j.Left > 0 || j.OnEnd != "" || len(j.Attributes) > 0 || strings.Contains(j.ID, "-")) {
		return spillway.Published{}, fmt.Errorf("job %s has a ttl, an on_end, attributes or an id of its own, and queues of PHP's hold none: it stays where it is", j.ID)
	}
	return m.To.PublishPHPPayloads(ctx, m.Target, [][]byte{j.Payload},
		spillway.PublishOptions{Key: key, Dedup: moveKey})
}
