package operate

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// attempts is "-" where the service does not know.
func attempts(j *admin.Job) string {
	if j.Attempt == nil {
		return "-"
	}
	return digits(*j.Attempt)
}

// JobsPeek prints the next job.
type JobsPeek struct {
	Connection `embed:""`
	output     `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Queue     string `arg:"" help:"The queue."`
	Unmasked  bool   `help:"Show the values of masked fields. Needs the role admin."`
}

// Run prints it.
func (c *JobsPeek) Run(ctx context.Context, s Streams) error {
	api, path, err := c.atQueue(c.Namespace, c.Queue)
	if err != nil {
		return err
	}
	return c.show(ctx, s, api, path+"/peek", c.Unmasked)
}

// JobsGet prints a job.
type JobsGet struct {
	Connection `embed:""`
	output     `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Queue     string `arg:"" help:"The queue."`
	Job       string `arg:"" help:"Id of the job."`
	Unmasked  bool   `help:"Show the values of masked fields. Needs the role admin."`
}

// Run prints it.
func (c *JobsGet) Run(ctx context.Context, s Streams) error {
	api, path, err := c.atQueue(c.Namespace, c.Queue)
	if err == nil {
		err = validJobs(c.Job)
	}
	if err != nil {
		return err
	}
	return c.show(ctx, s, api, path+"/jobs/"+c.Job, c.Unmasked)
}

// validJobs: an id is letters, digits, dashes and underscores, and so part of a path.
func validJobs(ids ...string) error {
	for _, id := range ids {
		if len(id) < 26 || len(id) > 91 || strings.ContainsFunc(id, func(r rune) bool {
			return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '-' && r != '_'
		}) {
			return usageError{fmt.Errorf("%s is not the id of a job", quote(id))}
		}
	}
	return nil
}

func (c *output) show(ctx context.Context, s Streams, api *client, path string, unmasked bool) error {
	query := url.Values{}
	if unmasked {
		query.Set("unmasked", "1")
	}
	var j admin.Job
	if done, err := c.read(ctx, s, api, path, query, &j); done {
		return err
	}
	t := newTable("job", escape(j.ID))
	expires := "never"
	switch {
	case j.State == "dead":
		expires = "" // it has no ttl any more
	case j.ExpiresMS > 0:
		expires = clock(j.ExpiresMS)
	}
	state := j.State
	if words, ok := map[string]string{"delayed": "delayed until ", "leased": "leased until ", "dead": "dead since "}[j.State]; ok {
		state = words + clock(j.AtMS)
	}
	if j.Reason != "" {
		state += ", " + escape(j.Reason)
	}
	for _, row := range [][2]string{
		{"queue", j.Queue}, {"state", state}, {"attempts", fmt.Sprintf("%s of %d", attempts(&j), j.Tries)}, {"published", clock(j.PublishedMS) + ", " + since(j.AgeMS) + " ago"},
		{"expires", expires}, {"bytes", digits(j.Bytes)}, {"attributes", compact(j.Attributes)}, {"data", body(&j.Shown)},
	} {
		if row[1] != "" {
			t.add(row[0], row[1])
		}
	}
	return t.print(s.Out)
}

// JobsDead lists dead letters.
type JobsDead struct {
	Connection `embed:""`
	output     `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Queue     string `arg:"" help:"The queue."`
	Limit     int    `default:"20" help:"Dead letters to list, at most 100."`
	Offset    int    `default:"0" help:"Dead letters to pass over."`
	Unmasked  bool   `help:"Show the values of masked fields. Needs the role admin."`
}

// Run prints the list.
func (c *JobsDead) Run(ctx context.Context, s Streams) error {
	if c.Limit < 1 || c.Limit > 100 || c.Offset < 0 {
		return usageError{fmt.Errorf("limit: want 1 to 100; offset: want 0 or more")}
	}
	api, path, err := c.atQueue(c.Namespace, c.Queue)
	if err != nil {
		return err
	}
	query := url.Values{"limit": {digits(c.Limit)}, "offset": {digits(c.Offset)}}
	if c.Unmasked {
		query.Set("unmasked", "1")
	}
	var answer admin.DeadJobs
	if done, err := c.read(ctx, s, api, path+"/dead", query, &answer); done {
		return err
	}
	t := newTable("JOB", "DIED", "REASON", "PUBLISHED", ">ATTEMPTS", ">BYTES", "DATA")
	for _, j := range answer.Jobs {
		t.add(j.ID, clock(j.AtMS), cmp.Or(escape(j.Reason), "-"), clock(j.PublishedMS), attempts(&j), digits(j.Bytes), body(&j.Shown))
	}
	if err := t.print(s.Out); err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "%d of %s\n", len(answer.Jobs), some(answer.Total, "dead letter", "dead letters"))
	return nil
}
