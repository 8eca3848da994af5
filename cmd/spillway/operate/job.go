package operate

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/human"
)

// JobsPeek prints the next job.
type JobsPeek struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Queue     string `arg:"" help:"The queue."`
	Unmasked  bool   `help:"Show the values of masked fields. Needs the role admin."`
}

// Run prints it.
func (c *JobsPeek) Run(ctx context.Context, s Streams) error {
	return c.show(ctx, s, c.oneQueue(c.Namespace, c.Queue).at("/peek"), c.Unmasked)
}

// JobsGet prints a job.
type JobsGet struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Queue     string `arg:"" help:"The queue."`
	Job       string `arg:"" help:"Id of the job."`
	Unmasked  bool   `help:"Show the values of masked fields. Needs the role admin."`
}

// Run prints it.
func (c *JobsGet) Run(ctx context.Context, s Streams) error {
	return c.show(ctx, s, c.oneQueue(c.Namespace,
		c.Queue).check(validJobs(c.Job)).at("/jobs/"+c.Job), c.Unmasked)
}

// JobsTrace prints what happened to a job.
type JobsTrace struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace."`
	Queue     string `arg:"" help:"The queue."`
	Job       string `arg:"" help:"Id of the job, which may be gone."`
}

// Run prints it.
func (c *JobsTrace) Run(ctx context.Context, s Streams) error {
	call := c.oneQueue(c.Namespace, c.Queue).check(validJobs(c.Job)).at("/jobs/" + c.Job + "/trace")
	var trace admin.Trace
	if done, err := c.read(ctx, s, call, &trace); done {
		return err
	}
	t := newTable("AT", "EVENT", ">ATTEMPT", "BY", "DETAILS")
	for _, e := range trace.Events {
		attempt, details := "-", []string{}
		if e.Attempt > 0 {
			attempt = digits(e.Attempt)
		}
		if e.Sink != "" {
			details = append(details, e.Sink, e.Outcome, "in "+human.Since(e.MS))
		}
		if e.Status > 0 {
			details = append(details, "with "+digits(e.Status))
		}
		if why := cmp.Or(e.Error, e.Reason); why != "" {
			details = append(details, why)
		}
		t.add(time.UnixMilli(e.AtMS).UTC().Format("2006-01-02T15:04:05.000Z"), e.Event,
			attempt, cmp.Or(e.By, "-"), escape(strings.Join(details, " ")))
	}
	return t.print(s.Out)
}

// validJobs: an id is letters, digits, dashes and underscores, and so part of a path.
func validJobs(ids ...string) error {
	for _, id := range ids {
		if len(id) < 26 || len(id) > 91 || strings.ContainsFunc(id, func(r rune) bool {
			return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' ||
				r > 'z') && r != '-' && r != '_'
		}) {
			return misuse("%s is not the id of a job", quote(id))
		}
	}
	return nil
}

func (c *command) show(ctx context.Context, s Streams, call *call, unmasked bool) error {
	var j admin.Job
	if done, err := c.read(ctx, s, call.on("unmasked", unmasked), &j); done {
		return err
	}
	attempt, expires := "attempt", "never"
	if waits(j.State) {
		attempt = "next attempt"
	}
	switch {
	case j.State == "dead", j.State == "acked":
		expires = "" // it has no ttl any more
	case j.ExpiresMS > 0:
		expires = clock(j.ExpiresMS)
	}
	state := j.State
	if words, ok := map[string]string{"delayed": "delayed until ",
		"prepared": "prepared until ", "leased": "leased until ", "dead": "dead since ", "acked": "acked at "}[j.State]; ok {
		state = words + clock(j.AtMS)
	}
	if j.Reason != "" {
		state += ", " + escape(j.Reason)
	}
	return details(
		"job",
		j.ID,
		"queue",
		j.Queue,
		"state",
		state,
		attempt,
		attemptText(j.State, j.Attempt, j.Tries),
		"published",
		clock(j.PublishedMS)+", "+human.Since(j.AgeMS)+" ago",
		"expires",
		expires,
		"error",
		lastError(&j),
		"progress",
		progressText(j.Progress, j.Note),
		"result",
		compact(j.Result),
		"bytes",
		digits(j.Bytes),
		"attributes",
		compact(j.Attributes),
		"data",
		body(&j.Shown),
	).print(s.Out)
}

// waits reports whether a job in a state waits for an attempt.
func waits(state string) bool { return state == "ready" || state == "delayed" || state == "prepared" }

// attemptText is the attempt that a job is at, or that is next where it waits, of its tries. Those before a respawn
// count as used.
func attemptText(state string, attempt *int, tries int) string {
	text := digitsOr(attempt, "-")
	if attempt != nil && waits(state) {
		text = digits(*attempt + 1)
	}
	if tries == 0 { // of PHP's: no limit
		return text
	}
	return text + " of " + digits(tries)
}

// progressText is how far the work on a job got, "" where its worker did not say.
func progressText(percent *int, note string) string {
	text := escape(note)
	if percent != nil {
		text = strings.TrimSpace(digits(*percent) + " % " + text)
	}
	return text
}

// lastError is why a job failed last, "" where its worker did not say.
func lastError(j *admin.Job) string {
	if len(j.Errors) == 0 {
		return ""
	}
	return escape(j.Errors[0].Error)
}
