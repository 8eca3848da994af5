package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/job"
)

// Defaults of a publish of prepared jobs: the last question is asked some 12 hours after the
// publish.
const (
	defaultCheckAfter = time.Minute
	defaultChecks     = 15
)

// prepare reads the parameters of a publish whose jobs wait for a commit; nil: they do not.
func (c *call) prepare() (*job.Prepare, *ingest.Rejection) {
	switch text, given := c.args["prepare"]; {
	case given && text != "0" && text != "1":
		return nil, badParameter("prepare", "1 or 0")
	case text != "1":
		for _, name := range []string{"check", "check_after", "checks"} {
			if _, given := c.args[name]; given {
				return nil, badParameter(name, "for prepared jobs: send prepare=1, too")
			}
		}
		return nil, nil
	}
	p, rejected := &job.Prepare{}, (*ingest.Rejection)(nil)
	least, fallback := 0, 0
	if queue, given := c.args["check"]; given {
		if !job.ValidOwnName(queue) {
			return nil, badParameter("check", "the name of a queue: 1 to 255 letters, digits, '.', '_' or '-', not '.' or '_' first")
		}
		p.Check = queue
		least = 1
		fallback = defaultChecks
	} else if _, given := c.args["checks"]; given {
		return nil, badParameter("checks", "how often check, the queue that is missing, is asked")
	}
	if p.After, rejected = c.duration("check_after", defaultCheckAfter, job.MinCheckAfter,
		job.MaxCheckAfter); rejected != nil {
		return nil, rejected
	}
	p.Checks, rejected = c.number("checks", fallback, least, job.MaxChecks)
	return p, rejected
}

// decide commits a prepared job, or rolls it back. A repeat has the same answer.
func (a *api) decide(c *call) *ingest.Rejection {
	ref, exists := c.namespace.ParseID(c.queue(), c.id)
	if !exists {
		return ingest.Reject(wire.CodeNoSuchJob, "")
	}
	d := &job.Decision{
		Namespace: c.namespace,
		Queue:     c.queue(),
		Ref:       ref,
		Rollback:  c.route.name == "rollback",
	}
	return a.alone(c, true, func(ctx context.Context) ([]byte, error) {
		if err := a.store.Decide(ctx, d); err != nil {
			return nil, err
		}
		if d.Rollback {
			return []byte(`{"result":"rolled_back"}`), nil
		}
		answer := []byte(`{"result":"committed"`)
		if d.State == job.Delayed {
			answer = fmt.Appendf(answer, `,"due_ms":%d`, d.Due)
		}
		return append(answer, '}'), nil
	})
}
