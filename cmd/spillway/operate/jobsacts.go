package operate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/human"
)

// ofQueue are the arguments and flags of an act on the jobs of a queue.
type ofQueue struct {
	acting `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Queue     string `arg:"" help:"The queue."`
}

// deadSelection says which dead letters are meant.
type deadSelection struct {
	Limit  int64         `placeholder:"N" help:"At most this many, the oldest first. Without it, all."`
	Reason *string       `enum:"nacked,lapsed,buried,undecided" placeholder:"REASON" help:"Only those that died so: nacked, lapsed, buried or undecided."`
	Error  *string       `placeholder:"TEXT" help:"Only those whose last error has this in it."`
	Age    time.Duration `default:"0" help:"Only those that died so long ago, or longer."`
	Cause  *string       `placeholder:"CAUSE" help:"Only those of this cause, as jobs dead --by cause prints it, or of what one of them says; then only --limit selects more."`
}

func (d *deadSelection) empty() bool { return *d == deadSelection{} }

func (d *deadSelection) request(ids []string) admin.DeadJobsRequest {
	r := admin.DeadJobsRequest{
		Limit: d.Limit,
		AgeMS: d.Age.Milliseconds(),
		IDs:   ids,
	}
	r.Reason, r.Error, r.Cause = text(d.Reason), text(d.Error), text(d.Cause)
	return r
}

func (d *deadSelection) check(ids []string) error {
	switch {
	case d.Limit < 0 || d.Age < 0:
		return misuse("limit and age: want 0 or more")
	case slices.Contains(ids, ""): // of a script whose variable is not set
		return misuse("an id is empty")
	case d.Error != nil && *d.Error == "", d.Cause != nil && *d.Cause == "": // so is this, and would select all
		return misuse("error or cause: it is empty")
	case len(ids) > 0 && !d.empty():
		return misuse("name dead letters by their ids, or select some by flags")
	}
	return nil
}

// JobsRespawn makes dead letters ready.
type JobsRespawn struct {
	ofQueue       `embed:""`
	deadSelection `embed:""`

	ID  []string      `arg:"" optional:"" help:"Ids of dead letters. Without one, all that the flags select."`
	TTL time.Duration `help:"How long they live from then on; 0 is for ever. That of their publish is gone." default:"0"`
}

// Run counts, asks and respawns.
func (c *JobsRespawn) Run(ctx context.Context, s Streams) error {
	if err := c.deadSelection.check(c.ID); err != nil {
		return err
	}
	if c.TTL < 0 {
		return misuse("ttl: want 0 or more")
	}
	request := &admin.RespawnRequest{DeadJobsRequest: c.request(c.ID), TTLMS: c.TTL.Milliseconds()}
	a := act{
		ask:     "make them ready",
		done:    "made ready",
		one:     "dead letter",
		request: request,
		agreed:  &request.Approval,
	}
	if len(c.ID) > 0 {
		a.nothing = func() { _ = s.tell("no job of these ids is dead: spillway jobs get says in which state one is") }
	}
	return c.run(ctx, s, "/dead/respawn", a)
}

// JobsPublish publishes jobs by hand.
type JobsPublish struct {
	command `embed:""`

	Namespace string         `arg:"" help:"The namespace."`
	Queue     string         `arg:"" help:"The queue."`
	Delay     *time.Duration `placeholder:"DURATION" help:"How long they wait until they are ready; default that of the queue's rule, or 0."`
	TTL       time.Duration  `help:"How long they live; 0 is for ever." default:"0"`
	Tries     int            `placeholder:"N" help:"How often they are claimed at most; default that of the queue's rule, or of the service."`
}

// publishAt is how many bytes of lines a request has: those of a longer one are rejected.
const publishAt = 48 << 10

// Run publishes them, some in a request.
func (c *JobsPublish) Run(ctx context.Context, s Streams) error {
	request := admin.PublishRequest{TTLMS: c.TTL.Milliseconds(), Tries: c.Tries}
	if c.Delay != nil {
		request.DelayMS = new(c.Delay.Milliseconds())
		if *c.Delay < 0 {
			return misuse("delay: want 0 or more")
		}
	}
	published, bytes := 0, 0
	send := func() error {
		if len(request.Data) == 0 {
			return nil
		}
		var answer admin.Published
		raw, err := c.oneQueue(c.Namespace, c.Queue).at("/jobs").post(ctx, &request, &answer)
		if err != nil {
			return fmt.Errorf("after %s: %w", human.Some(int64(published), "job that was published", "jobs that were published"), err)
		}
		published += len(answer.IDs)
		request.Data, bytes = nil, 0
		if c.Output == "json" {
			return printParts(s.Out, raw, "ids")
		}
		_, err = fmt.Fprintln(s.Out, strings.Join(answer.IDs, "\n"))
		return err
	}
	lines := bufio.NewScanner(s.In)
	lines.Buffer(nil, publishAt)
	for n := 1; lines.Scan(); n++ {
		line := slices.Clone(lines.Bytes())
		switch {
		case len(strings.TrimSpace(string(line))) == 0:
			continue
		case !json.Valid(line):
			if err := send(); err != nil {
				return err
			}
			return misuse("line %d is not JSON; those before it were published", n)
		case bytes+len(line) > publishAt || len(request.Data) == admin.MaxPublished:
			if err := send(); err != nil {
				return err
			}
		}
		request.Data = append(request.Data, line)
		bytes += len(line)
	}
	err := lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = misuse("a line is longer than %d bytes: publish it by the data port", publishAt)
	}
	if err := errors.Join(send(), err); err != nil {
		return err
	}
	return s.tell("published %s", human.Some(int64(published), "job", "jobs"))
}

// JobsPromote makes delayed jobs ready.
type JobsPromote struct {
	ofQueue `embed:""`

	ID []string `arg:"" help:"Ids of delayed jobs."`
}

// Run asks and promotes.
func (c *JobsPromote) Run(ctx context.Context, s Streams) error {
	return c.each(ctx, s, c.ID, "promote", "make them ready now", "made ready")
}

// JobsPurge deletes what waits in a queue.
type JobsPurge struct {
	ofQueue `embed:""`

	All bool `help:"Delete delayed, leased and dead jobs, too."`
}

// Run counts, asks and deletes.
func (c *JobsPurge) Run(ctx context.Context, s Streams) error {
	request := &admin.PurgeJobsRequest{State: "ready"}
	a := act{
		ask:     "delete them, with those that arrive meanwhile",
		done:    "deleted",
		one:     "ready job",
		request: request,
		agreed:  &request.Approval,
	}
	if c.All {
		a.one, request.State = "job", "all"
	} else {
		a.nothing = func() { c.sayWhatElse(ctx, s) }
	}
	return c.run(ctx, s, "/purge", a)
}

// JobsDelete deletes jobs by id, or dead letters.
type JobsDelete struct {
	ofQueue       `embed:""`
	deadSelection `embed:""`

	ID   []string `arg:"" optional:"" help:"Ids of jobs, in whatever state."`
	Dead bool     `help:"Delete dead letters of the queue instead: all, or those that the other flags select."`
}

// Run asks and deletes.
func (c *JobsDelete) Run(ctx context.Context, s Streams) error {
	switch {
	case c.Dead == (len(c.ID) > 0):
		return misuse("name jobs by their ids, or add --dead for the dead letters of the queue")
	case !c.Dead && !c.empty():
		return misuse("limit, reason, error, age and cause select dead letters: add --dead")
	case c.Dead:
		if err := c.deadSelection.check(nil); err != nil {
			return err
		}
		request := c.request(nil)
		return c.run(ctx, s, "/dead/delete", act{
			ask:     "delete them",
			done:    "deleted",
			one:     "dead letter",
			request: &request,
			agreed:  &request.Approval,
		})
	}
	return c.each(ctx, s, c.ID, "delete", "delete them", "deleted")
}

// JobsCommit commits prepared jobs by id.
type JobsCommit struct {
	ofQueue `embed:""`

	ID []string `arg:"" help:"Ids of prepared jobs."`
}

// Run asks and commits.
func (c *JobsCommit) Run(ctx context.Context, s Streams) error {
	return c.each(ctx, s, c.ID, "commit", "commit them", "committed")
}

// JobsRollback rolls prepared jobs back by id.
type JobsRollback struct {
	ofQueue `embed:""`

	ID []string `arg:"" help:"Ids of prepared jobs."`
}

// Run asks and rolls back.
func (c *JobsRollback) Run(ctx context.Context, s Streams) error {
	return c.each(ctx, s, c.ID, "rollback", "roll them back", "rolled back")
}

// each asks, and then does an act on jobs, one by one.
func (c *ofQueue) each(ctx context.Context, s Streams, ids []string, verb, ask, done string) error {
	if err := c.at("").check(validJobs(ids...)).err; err != nil {
		return err
	}
	if c.DryRun {
		return c.print(s, admin.ActedJobs{DryRun: true, Jobs: int64(len(ids)), Complete: true},
			"nothing was changed")
	}
	if err := c.ask(ctx, s, int64(len(ids)), ask); err != nil {
		return err
	}
	total := admin.ActedJobs{Complete: true}
	var failures []error
	for _, id := range ids {
		var part admin.ActedJobs
		if _, err := c.at("/jobs/"+id+"/"+verb).post(ctx, struct{}{}, &part); err != nil {
			total.Complete = false
			failures = append(failures, fmt.Errorf("%s: %w", id, err))
			continue
		}
		total.Jobs += part.Jobs
	}
	if err := c.print(s, total, done+" "+human.Some(total.Jobs, "job", "jobs")); err != nil {
		return err
	}
	return errors.Join(failures...)
}

// at is the call of a route of the queue.
func (c *ofQueue) at(route string) *call {
	return c.oneQueue(c.Namespace, c.Queue).at(route)
}

func (c *ofQueue) run(ctx context.Context, s Streams, route string, a act) error {
	a.to, a.many = scope(c.Namespace, c.Queue), a.one+"s"
	a.answer = func(_ json.RawMessage, done acted) any {
		return admin.ActedJobs{DryRun: done.DryRun, Jobs: done.Jobs, Complete: done.Complete}
	}
	_, _, err := c.act(ctx, s, c.at(route), a)
	return err
}

// sayWhatElse counts the jobs of a queue that are not ready: a purge leaves them.
func (c *ofQueue) sayWhatElse(ctx context.Context, s Streams) {
	var q admin.QueueRow
	if _, err := c.at("").get(ctx, &q); err == nil && q.Pending+q.Dead > 0 {
		_ = s.tell("it has %d delayed or leased and %d dead: --all is for those, too",
			q.Pending, q.Dead)
	}
}

func (c *ofQueue) print(s Streams, answer admin.ActedJobs, text string) error {
	return c.output.print(s, answer, scope(c.Namespace, c.Queue)+": "+text)
}
