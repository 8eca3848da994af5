package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

const (
	maxTimes     = 1000 // of _times
	maxSchedules = 1000 // of a list
)

// putSchedule makes a schedule, or replaces its specification.
func (a *api) putSchedule(c *call) *ingest.Rejection {
	spec, rejected := a.spec(c)
	if rejected != nil {
		return rejected
	}
	if rejected := a.fits(c, spec); rejected != nil {
		return rejected
	}
	revision, rejected := ifMatch(c)
	if rejected != nil {
		return rejected
	}
	var created bool
	rejected = a.reading(c, true, func(ctx context.Context) (any, error) {
		p, err := schedule.Put(ctx, a.store, c.namespace, c.queue(), c.schedule, spec, revision)
		if err != nil {
			return nil, err
		}
		created = p.Result == job.Created
		next := []string{}
		if p.First > 0 {
			next = spec.Times(time.UnixMilli(p.First-1), schedule.ShownTimes)
		}
		return map[string]any{"result": p.Result.String(), "rev": p.Revision, "next": next}, nil
	})
	if rejected == nil && created {
		c.Ctx.SetStatusCode(201)
	}
	return rejected
}

// spec reads the specification that is the body.
func (a *api) spec(c *call) (*schedule.Spec, *ingest.Rejection) {
	body, rejected := c.Body()
	if rejected != nil {
		return nil, rejected
	}
	spec, err := schedule.Parse(body)
	if err != nil {
		return nil, Reject(err)
	}
	return spec, nil
}

// ifMatch is the revision of the header of that name; 0: there is none.
func ifMatch(c *call) (int64, *ingest.Rejection) {
	text := strings.Trim(string(c.Ctx.Request.Header.Peek("If-Match")), `"`)
	if text == "" || text == "*" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, ingest.Reject(wire.CodeBadHeader, "If-Match is the rev of a schedule")
	}
	return n, nil
}

func (a *api) getSchedule(c *call) *ingest.Rejection {
	return a.reading(c, false, func(ctx context.Context) (any, error) {
		s, err := a.store.GetSchedule(ctx, c.namespace, c.queue(), c.schedule)
		if err != nil {
			return nil, err
		}
		return schedule.Describe(c.namespace, s)
	})
}

// listSchedules lists the schedules of a queue by name.
func (a *api) listSchedules(c *call) *ingest.Rejection {
	limit := c.number("limit", 100, 1, maxSchedules)
	return a.reading(c, false, func(ctx context.Context) (any, error) {
		list, more, err := a.store.Schedules(ctx, c.namespace, c.queue(), c.args["after"], limit)
		if err != nil {
			return nil, err
		}
		answer := struct {
			Schedules []schedule.Shown `json:"schedules"`
			Next      string           `json:"next,omitempty"` // the after of the next page
		}{Schedules: []schedule.Shown{}}
		for _, s := range list {
			if described, err := schedule.Describe(c.namespace, s); err == nil {
				answer.Schedules = append(answer.Schedules, described)
			}
		}
		if more && len(list) > 0 {
			answer.Next = list[len(list)-1].Name
		}
		return answer, nil
	})
}

func (a *api) deleteSchedule(c *call) *ingest.Rejection {
	return a.reading(c, true, func(ctx context.Context) (any, error) {
		err := schedule.Delete(ctx, a.store, c.namespace, c.queue(), c.schedule)
		return []byte(`{"result":"deleted"}`), err
	})
}

// pauseSchedule pauses or resumes, as the route says.
func (a *api) pauseSchedule(c *call) *ingest.Rejection {
	pause, state := c.route.name == "pause_schedule", "active"
	if pause {
		state = "paused"
	}
	return a.reading(c, true, func(ctx context.Context) (any, error) {
		changed, rev, err := a.store.PauseSchedule(ctx, c.namespace, c.queue(), c.schedule, pause)
		return fmt.Appendf(nil, `{"state":"%s","changed":%t,"rev":%d}`, state, changed, rev), err
	})
}

// trigger publishes a run now.
func (a *api) trigger(c *call) *ingest.Rejection {
	force := c.flag("force", wire.CodeBadForce)
	key := c.Ctx.Request.Header.Peek("Idempotency-Key")
	if len(key) > 0 && !wire.ValidIdempotencyKey(key) {
		c.fail(wire.CodeBadHeader,
			"Idempotency-Key is 1 to 128 printable ASCII characters")
	}
	return a.reading(c, true, func(ctx context.Context) (any, error) {
		t := &job.Trigger{Namespace: c.namespace, Queue: c.queue(), Name: c.schedule, Key: string(key)}
		if err := a.runNow(ctx, c, t, force); err != nil {
			if t.Runs = (job.Runs{}); t.Key == "" || a.store.Trigger(ctx, t) != nil {
				return nil, err
			}
		}
		p := &job.Publish{
			Namespace: c.namespace,
			Queue:     t.Queue,
			First:     t.First,
			Count:     t.Count,
			Repeated:  t.Repeated,
		}
		p.Shard = c.namespace.ScheduleShard(t.Queue)
		return trimmed(appendPublished(nil, p)), nil
	})
}

// runNow publishes a run of a schedule as it is now.
func (a *api) runNow(ctx context.Context, c *call, t *job.Trigger, force bool) error {
	spec, err := schedule.Stored(ctx, a.store, t.Namespace, t.Queue, t.Name)
	if err != nil {
		return err
	}
	now, err := a.store.Clock(ctx, t.Namespace, t.Queue)
	if err != nil {
		return err
	}
	if err := spend(c, spec.Counts()); err != nil {
		return err
	}
	t.Finished = !force && spec.Overlap != "" && spec.Overlap != "allow"
	t.Runs = spec.Runs(t.Name, []int64{now}, 't')
	return a.store.Trigger(ctx, t)
}

// trimmed is an answer without the line feed that reading adds.
func trimmed(answer []byte) []byte { return answer[:len(answer)-1] }

// limitedError is a rejection on its way through what reads the store.
type limitedError struct{ *ingest.Rejection }

func (limitedError) Error() string { return "the token has used its rate" }

// spend takes jobs off the rate of the token, or is a limitedError.
func spend(c *call, jobs int) error {
	if _, rejected := c.take(c.key.Limiters().Produce, jobs); rejected != nil {
		return limitedError{rejected}
	}
	return nil
}

// backfill publishes a run for each tick of a range.
func (a *api) backfill(c *call) *ingest.Rejection {
	from, to := c.moment("from", time.Time{}), c.moment("to", time.Time{})
	switch {
	case from.IsZero():
		c.fail(wire.CodeBadFrom, "")
	case to.IsZero() || !to.After(from):
		c.fail(wire.CodeBadTo, "")
	}
	return a.reading(c, true, func(ctx context.Context) (any, error) {
		spec, err := schedule.Stored(ctx, a.store, c.namespace, c.queue(), c.schedule)
		if err != nil {
			return nil, err
		}
		b := &schedule.Backfill{
			Namespace: c.namespace,
			Queue:     c.queue(),
			Name:      c.schedule,
			From:      from,
			To:        to,
			Spec:      spec,
		}
		ticks, err := b.Ticks()
		if err != nil {
			return nil, err
		}
		err = b.Publish(ctx, a.store, ticks, func(jobs int) error { return spend(c, jobs) })
		if err != nil {
			return nil, err
		}
		return fmt.Appendf(nil, `{"ticks":%d,"accepted":%d}`, len(ticks), b.Accepted), nil
	})
}

// times lists the ticks of a specification, and stores nothing.
func (a *api) times(c *call) *ingest.Rejection {
	count, from := c.number("count", 10, 1, maxTimes), c.moment("from", time.Now())
	if c.wrong != nil {
		return c.wrong
	}
	spec, rejected := a.spec(c)
	if rejected != nil {
		return rejected
	}
	answer, _ := json.Marshal(map[string]any{"next": spec.Times(from, count)}) // of strings
	return c.Answer(200, jsonType, append(answer, '\n'))
}
