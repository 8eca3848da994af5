package operate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/partition"
)

// JobsMove moves jobs, as a client of the data port: who may not publish cannot move.
type JobsMove struct {
	Namespace string `arg:"" help:"Namespace of the jobs."`
	Queue     string `arg:"" help:"Their queue."`
	To        string `required:"" placeholder:"NAMESPACE/QUEUE" help:"Where they go."`
	DataPort
	Rate   partition.Rate `placeholder:"RATE" help:"Jobs to move in a time, such as 500/s; default as fast as they are taken."`
	Follow bool           `help:"Go on, and move what becomes ready, until it is interrupted."`
	DryRun bool           `help:"Count the jobs and move none."`
}

// DataPort are its flags that have an environment variable.
type DataPort struct {
	Server  string `name:"server" default:"http://127.0.0.1:8080" help:"URL of the service's data port."`
	Token   string `name:"token" placeholder:"TOKEN" help:"Token of the jobs' namespace. The environment variable SPILLWAY_TOKEN hides it from the process list."`
	ToToken string `name:"to-token" placeholder:"TOKEN" help:"Token of the other namespace; default that of --token. In a namespace of kind php it needs the right to produce."`
}

// Settings are those flags.
func (d *DataPort) Settings() any { return d }

// How a move works.
const (
	moveBatch = 100             // jobs in hand at once
	moveTTR   = time.Minute     // their lease
	moveWait  = 5 * time.Second // for the next, with --follow
	moveKey   = 24 * time.Hour  // how long a repeat of a move stores nothing
	movers    = 16              // publishes at once
)

// mover is a move under way.
type mover struct {
	from, to *sdk.Jobs
	queue    string
	target   string
	php      bool // the target is PHP's

	moved, before atomic.Int64 // before: they were moved by an earlier run
}

// Run moves until there are no more.
func (c *JobsMove) Run(ctx context.Context, s Streams) error {
	namespace, queue, found := strings.Cut(c.To, "/")
	if !found || namespace == "" || queue == "" {
		return usageError{errors.New("to: want NAMESPACE/QUEUE, such as orders/mails")}
	}
	if c.Namespace == namespace && c.Queue == queue {
		return usageError{errors.New("to: it is the queue itself")}
	}
	m := &mover{queue: c.Queue, target: queue}
	var err error
	if m.from, err = sdk.NewJobs(c.Server, sdk.JobsConfig{Namespace: c.Namespace,
		Token: c.Token}); err != nil {
		return usageError{err}
	}
	defer m.from.Close()
	token := cmp.Or(c.ToToken, c.Token)
	if m.to, err = sdk.NewJobs(c.Server, sdk.JobsConfig{Namespace: namespace,
		Token: token}); err != nil {
		return usageError{err}
	}
	defer m.to.Close()
	counts, err := m.from.Counts(ctx, c.Queue)
	if err != nil {
		return err
	}
	if c.DryRun {
		return s.tell("%d jobs are ready and would be moved; %d are delayed, leased or held by PHP's workers, %d are dead, and stay",
			counts.Ready, counts.Pending+counts.Reserved, counts.Dead)
	}
	err = c.move(ctx, m)
	if c.Follow && ctx.Err() != nil {
		err = nil // that is how it ends
	}
	return errors.Join(s.tell("moved %d jobs; %d were moved before", m.moved.Load(),
		m.before.Load()), err)
}

func (c *JobsMove) move(ctx context.Context, m *mover) error {
	o := sdk.TakeOptions{Count: moveBatch, TTR: moveTTR}
	if c.Follow {
		o.Wait = moveWait
	}
	if c.Rate.Count > 0 {
		o.Count = int(min(moveBatch, max(1, c.Rate.Count*int64(time.Second)/int64(c.Rate.Per)/4)))
	}
	for ctx.Err() == nil {
		began := time.Now()
		jobs, err := m.from.Take(ctx, []string{m.queue}, o)
		switch {
		case err != nil:
			return err
		case len(jobs) == 0 && !c.Follow:
			return nil
		}
		if err := m.all(context.WithoutCancel(ctx), jobs); err != nil { // what is in hand is finished
			return err
		}
		if c.Rate.Count > 0 {
			pause := time.Until(began.Add(c.Rate.Per * time.Duration(len(jobs)) / time.Duration(c.Rate.Count)))
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
	return ctx.Err()
}

// all moves jobs, and gives those back that the target did not take.
func (m *mover) all(ctx context.Context, jobs []sdk.Job) error {
	if !m.php { // the first learns what the target is
		if err := m.one(ctx, jobs[0]); err != nil {
			return m.giveBack(ctx, jobs, err)
		}
		jobs = jobs[1:]
	}
	errs := make([]error, len(jobs))
	slots := make(chan struct{}, movers)
	var moving sync.WaitGroup
	for i := range jobs {
		slots <- struct{}{}
		moving.Go(func() {
			defer func() { <-slots }()
			errs[i] = m.one(ctx, jobs[i])
		})
	}
	moving.Wait()
	var failed []sdk.Job
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
func (m *mover) giveBack(ctx context.Context, jobs []sdk.Job, err error) error {
	for i := len(jobs) - 1; i >= 0; i-- {
		if back := m.from.Requeue(ctx, jobs[i]); back != nil && !errors.Is(back, sdk.ErrGone) {
			return errors.Join(err, back)
		}
	}
	return err
}

// keyOf names a job the same way in each run. A job of kind queue has one id for ever. A delivery of
// PHP's has another each time, so there the payload's own id stands for it.
func (m *mover) keyOf(j sdk.Job) string {
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

// one publishes a job and acks it. A repeat stores nothing. Of PHP's, a payload with the same id that
// was never delivered is another job, such as one that queue:retry pushed; one that was delivered
// before, or whose first answer was lost, may be either, and is buried rather than lost or doubled.
func (m *mover) one(ctx context.Context, j sdk.Job) error {
	key := m.keyOf(j)
	published, err := m.publish(ctx, j, key)
	if err == nil && published.Repeated && !published.Retried && j.PHP != nil && j.Attempt == 1 {
		published, err = m.publish(ctx, j, key+":"+j.ID)
		published.Repeated = false // of this delivery alone
	}
	switch {
	case errors.Is(err, sdk.ErrUnknown):
		return m.mayBeThere(ctx, j, err)
	case err != nil:
		return err
	}
	if published.Repeated {
		m.before.Add(1)
		if j.PHP != nil {
			return ended(m.from.Bury(ctx, j))
		}
	} else {
		m.moved.Add(1)
	}
	return m.mayBeThere(ctx, j, ended(m.from.Ack(ctx, j)))
}

// mayBeThere gives a job of PHP's back, counted, that failed with err when the target may have it.
// Requeued it would look as if it had never been delivered, and the next run would double it.
func (m *mover) mayBeThere(ctx context.Context, j sdk.Job, err error) error {
	if err == nil || j.PHP == nil {
		return err
	}
	return errors.Join(err, ended(m.from.Release(ctx, j, 0)))
}

// ended is nil where the lease was over: the job comes again, and is moved once.
func ended(err error) error {
	if errors.Is(err, sdk.ErrGone) {
		return nil
	}
	return err
}

func (m *mover) publish(ctx context.Context, j sdk.Job, key string) (sdk.Published, error) {
	if !m.php {
		o := sdk.PublishOptions{Tries: j.Tries, Key: key, KeyTTL: moveKey}
		p, err := m.to.Publish(ctx, m.target, j.Payload, o)
		var said *sdk.Error
		if !errors.As(err, &said) || said.Code != "bad_parameter" {
			return p, err
		}
		m.php = true
	}
	return m.to.PublishPHPPayloads(ctx, m.target, [][]byte{j.Payload},
		sdk.PublishOptions{Key: key, KeyTTL: moveKey})
}
