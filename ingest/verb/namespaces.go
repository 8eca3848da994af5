package verb

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/control"
)

// A milliseconds is so many in JSON, and such as 10m on a command line.
type milliseconds time.Duration

// UnmarshalJSON reads both.
func (m *milliseconds) UnmarshalJSON(text []byte) error {
	span, err := time.ParseDuration(string(text))
	if err != nil {
		span, err = time.ParseDuration(string(text) + "ms")
	}
	if err != nil {
		return errors.New("reply_ttl_ms: want 1000 to 86400000")
	}
	*m = milliseconds(span)
	return nil
}

// MarshalJSON writes the number.
func (m milliseconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, time.Duration(m).Milliseconds(), 10), nil
}

type namespace struct {
	Namespace    string         `arg:"" name:"name" json:"namespace" help:"Its name."`
	Description  string         `json:"description" placeholder:"TEXT" help:"What it is for, at most 512 bytes."`
	Pool         string         `json:"pool" default:"default" help:"Pool of the file that holds its jobs, for ever."`
	Shards       int            `json:"shards" default:"1" help:"Groups of keys, each in one Redis Cluster slot."`
	Spread       map[string]int `json:"spread" placeholder:"QUEUE=SHARDS" help:"Queues whose jobs lie on several shards, such as bulk=4."`
	MaxJobs      int64          `json:"max_jobs" default:"10000000" help:"Jobs that it may hold, dead ones included."`
	MaxQueues    int64          `json:"max_queues" default:"10000" help:"Queues that may have jobs."`
	MaxSchedules int64          `json:"max_schedules" default:"100000" help:"Schedules that it may have; 0: none."`
	Dead         string         `json:"dead" enum:"keep,drop" default:"keep" help:"What becomes of a job whose tries are used up: keep it as a dead letter, or drop it."`
	ReplyTTL     milliseconds   `json:"reply_ttl_ms" default:"10m" help:"How long jobs of reply queues live at most."`
}

func namespaceOf(n *control.Namespace) namespace {
	p := &n.Policy
	f := namespace{
		Namespace:    n.Name,
		Description:  n.Description,
		Pool:         n.Pool,
		Shards:       p.Shards,
		Spread:       p.Spread,
		MaxJobs:      p.MaxJobs,
		MaxQueues:    p.MaxQueues,
		MaxSchedules: p.MaxSchedules,
		Dead:         "keep",
		ReplyTTL:     milliseconds(p.ReplyTTL),
	}
	if p.DropDead {
		f.Dead = "drop"
	}
	if f.Spread == nil {
		f.Spread = map[string]int{}
	}
	return f
}

// Default is what is made of a request that says nothing.
func (q *namespace) Default() {
	n := control.NewNamespace("", control.DefaultPool, "")
	*q = namespaceOf(&n)
}

type madeNamespace struct {
	namespace
	made
	Tokens int `json:"tokens"`
}

type namespaceList struct {
	Namespaces []madeNamespace `json:"namespaces"`
}

func namespaces(_ context.Context, c *Control, _ *struct{}) (namespaceList, error) {
	now, list := c.Snapshot(), []madeNamespace{}
	for _, n := range now.Namespaces() {
		list = append(list, madeNamespace{namespaceOf(n), made{n.CreatedMS, n.CreatedBy, n.FromFile}, len(now.Tokens(n.Name))})
	}
	return namespaceList{list}, nil
}

func createNamespace(ctx context.Context, c *Control, q *namespace) (namespace, error) {
	var v partition.Validation
	v.Check(q.Dead == "keep" || q.Dead == "drop", "dead", q.Dead, "keep or drop")
	if err := v.Err(); err != nil {
		return *q, err
	}
	n := control.NewNamespace(q.Namespace, q.Pool, c.By)
	p := &n.Policy
	n.Description = q.Description
	p.Shards = q.Shards
	p.Spread = q.Spread
	p.MaxJobs = q.MaxJobs
	p.MaxQueues = q.MaxQueues
	p.MaxSchedules = q.MaxSchedules
	p.DropDead = q.Dead == "drop"
	p.ReplyTTL = time.Duration(q.ReplyTTL)
	c.Namespace, c.Detail = q.Namespace, fmt.Sprintf("pool %s, shards %d", q.Pool, q.Shards)
	return *q, c.CreateNamespace(ctx, n)
}

type deleteNamespace struct {
	inControl
	Approval
	Force bool `json:"force" help:"Also delete its jobs, for good. They count as deleted."`
}

type deletedNamespace struct {
	DryRun bool  `json:"dry_run"`
	Jobs   int64 `json:"jobs" help:"Jobs that were deleted with it; with dry_run, that it has."`
}

// removeNamespace deletes a namespace that has no jobs and no schedules; with force, one that has some.
func removeNamespace(ctx context.Context, c *Control, q *deleteNamespace) (answer deletedNamespace, err error) {
	switch {
	case c.Of.FromFile:
		return answer, control.ErrInFile
	case c.Jobs == nil:
		return answer, errors.New("the namespace is not in use yet") // its pool is not ready
	}
	if n, err := c.left(ctx, q.Force); err != nil || q.DryRun {
		return deletedNamespace{true, n}, err
	}
	c.Detail, c.Entries = fmt.Sprintf("force %v", q.Force), &answer.Jobs
	err = c.DeleteNamespace(ctx, c.Namespace, func(ctx context.Context) (err error) { // no job comes any more
		if q.Force {
			answer.Jobs, err = c.Jobs.Purge(ctx)
			return err
		}
		_, err = c.left(ctx, false)
		return err
	})
	return answer, err
}

// ErrHas is why a namespace is not deleted.
var ErrHas = errors.New("empty it first, or send force: true (rm --force), which deletes all of it for good")

// left is how many jobs the namespace has. Without force it is ErrHas where there are any, or
// schedules, which would fire in the next of its name.
func (c *Control) left(ctx context.Context, force bool) (int64, error) {
	n, err := c.Jobs.Jobs(ctx)
	if err != nil || force {
		return n, err
	}
	schedules, err := c.Jobs.Schedules(ctx)
	switch {
	case n == 1:
		err = fmt.Errorf("it has 1 job: %w", ErrHas)
	case n > 1:
		err = fmt.Errorf("it has %d jobs: %w", n, ErrHas)
	case err == nil && schedules > 0:
		err = fmt.Errorf("it has schedules (%d): %w", schedules, ErrHas)
	}
	return n, err
}
