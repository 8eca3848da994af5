package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// jobsRequest is the body of every act on the jobs of a queue.
type jobsRequest struct {
	State   string `json:"state,omitempty"`
	Limit   int64  `json:"limit,omitempty"`
	TTLMS   int64  `json:"ttl_ms,omitempty"`
	DryRun  bool   `json:"dry_run,omitempty"`
	Confirm *int64 `json:"confirm,omitempty"`
}

// ofQueue are the arguments and flags of an act on the jobs of a queue.
type ofQueue struct {
	Connection `embed:""`
	output     `embed:""`
	consent    `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Queue     string `arg:"" help:"The queue."`
}

// JobsRespawn makes dead letters ready.
type JobsRespawn struct {
	ofQueue `embed:""`

	Limit int64         `placeholder:"N" help:"At most this many, the oldest first. Without it, all."`
	TTL   time.Duration `help:"How long they live from then on; 0 is for ever." default:"0"`
}

// Run counts, asks and respawns.
func (c *JobsRespawn) Run(ctx context.Context, s Streams) error {
	if c.Limit < 0 || c.TTL < 0 {
		return usageError{errors.New("limit and ttl: want 0 or more")}
	}
	return c.act(ctx, s, jobsAct{"/dead/respawn", "make them ready", "made ready", "dead letter", jobsRequest{Limit: c.Limit, TTLMS: c.TTL.Milliseconds()}})
}

// JobsPurge deletes what waits in a queue.
type JobsPurge struct {
	ofQueue `embed:""`

	All bool `help:"Delete delayed, leased and dead jobs, too."`
}

// Run counts, asks and deletes.
func (c *JobsPurge) Run(ctx context.Context, s Streams) error {
	a := jobsAct{"/purge", "delete them, with those that arrive meanwhile", "deleted", "ready job", jobsRequest{State: "ready"}}
	if c.All {
		a.noun, a.request.State = "job", "all"
	}
	return c.act(ctx, s, a)
}

// JobsDelete deletes jobs by id, or dead letters.
type JobsDelete struct {
	ofQueue `embed:""`

	ID    []string `arg:"" optional:"" help:"Ids of jobs, in whatever state."`
	Dead  bool     `help:"Delete the dead letters of the queue instead, the oldest first."`
	Limit int64    `placeholder:"N" help:"With --dead: at most this many. Without it, all."`
}

// Run asks and deletes.
func (c *JobsDelete) Run(ctx context.Context, s Streams) error {
	switch {
	case c.Dead == (len(c.ID) > 0):
		return usageError{errors.New("name jobs by their ids, or add --dead for the dead letters of the queue")}
	case c.Limit < 0 || c.Limit > 0 && !c.Dead:
		return usageError{errors.New("limit: want 1 or more, with --dead")}
	case c.Dead:
		return c.act(ctx, s, jobsAct{"/dead/delete", "delete them", "deleted", "dead letter", jobsRequest{Limit: c.Limit}})
	}
	api, path, err := c.atQueue(c.Namespace, c.Queue)
	if err == nil {
		err = validJobs(c.ID...)
	}
	if err != nil {
		return err
	}
	if c.DryRun {
		return c.print(s, admin.ActedJobs{DryRun: true, Jobs: int64(len(c.ID)), Complete: true}, "nothing was changed")
	}
	if err := c.ask(ctx, s, int64(len(c.ID)), "delete them"); err != nil {
		return err
	}
	total := admin.ActedJobs{Complete: true}
	var failures []error
	for _, id := range c.ID {
		var part admin.ActedJobs
		if _, err := api.post(ctx, path+"/jobs/"+id+"/delete", struct{}{}, &part); err != nil {
			total.Complete = false
			failures = append(failures, fmt.Errorf("%s: %w", id, err))
			continue
		}
		total.Jobs += part.Jobs
	}
	if err := c.print(s, total, "deleted "+some(total.Jobs, "job", "jobs")); err != nil {
		return err
	}
	return errors.Join(failures...)
}

type jobsAct struct {
	route, ask, done, noun string
	request                jobsRequest
}

// act counts, asks, and acts until as many as were confirmed are done: the service ends a
// request that takes long, and says that it is not complete.
func (c *ofQueue) act(ctx context.Context, s Streams, a jobsAct) error {
	api, path, err := c.atQueue(c.Namespace, c.Queue)
	if err != nil {
		return err
	}
	path += a.route
	request := a.request
	request.DryRun = true
	var found admin.ActedJobs
	if _, err := api.post(ctx, path, request, &found); err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "%s/%s: found %s\n", c.Namespace, c.Queue, some(found.Jobs, a.noun, a.noun+"s"))
	if found.Jobs == 0 && request.State == "ready" {
		c.sayWhatElse(ctx, s, api, strings.TrimSuffix(path, a.route))
	}
	if c.DryRun || found.Jobs == 0 {
		return c.print(s, found, "nothing was changed")
	}
	if err := c.ask(ctx, s, found.Jobs, a.ask); err != nil {
		return err
	}
	request.DryRun = false
	total := admin.ActedJobs{}
	for left := found.Jobs; left > 0 && !total.Complete; {
		request.Confirm = &left
		var part admin.ActedJobs
		if _, err = api.post(ctx, path, request, &part); err != nil || part.Jobs == 0 {
			total.Complete = err == nil && part.Complete
			break
		}
		total.Jobs, total.Complete = total.Jobs+part.Jobs, part.Complete
		left -= part.Jobs
	}
	if printErr := c.print(s, total, a.done+" "+some(total.Jobs, a.noun, a.noun+"s")); err == nil {
		err = printErr
	}
	return err
}

// sayWhatElse counts the jobs of a queue that are not ready: a purge leaves them.
func (c *ofQueue) sayWhatElse(ctx context.Context, s Streams, api *client, path string) {
	var q admin.QueueRow
	if _, err := api.get(ctx, path, nil, &q); err == nil && q.Pending+q.Dead > 0 {
		fmt.Fprintf(s.Err, "it has %d delayed or leased and %d dead: --all is for those, too\n", q.Pending, q.Dead)
	}
}

func (c *ofQueue) print(s Streams, answer admin.ActedJobs, text string) error {
	return c.output.print(s, answer, scope(c.Namespace, c.Queue)+": "+text)
}
