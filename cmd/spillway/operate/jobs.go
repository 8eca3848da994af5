package operate

import (
	"context"
	"encoding/json"
	"time"

	"github.com/alecthomas/kong"
	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/human"
	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/partition/schedule"
)

// Jobs has the commands for namespaces of kind queue.
type Jobs struct {
	kong.Plugins
	Ls       JobsLs       `cmd:"" help:"List the namespaces of kind queue, the queues of one with their jobs, or the jobs of one that are in a state."`
	Publish  JobsPublish  `cmd:"" help:"Publish the lines of stdin, each of which is JSON and becomes a job, and print their ids."`
	Move     JobsMove     `cmd:"" help:"Move the ready jobs of a queue into another, of any namespace and kind, also from and to PHP's, each with all that it has: attributes, id, on_end, ttl. What it had in hand when it ended comes again after a minute, and is moved once."`
	Forecast JobsForecast `cmd:"" help:"Print how many delayed jobs and ticks of schedules come due when."`
}

// JobsLs lists.
type JobsLs struct {
	command `embed:""`

	Namespace string `arg:"" optional:"" help:"Namespace of the queues; without it, the namespaces of kind queue."`
	Queue     string `arg:"" optional:"" help:"Queue of the jobs."`
	State     string `enum:"ready,prepared,delayed,leased,dead,acked" default:"ready" help:"Of a queue: its jobs in this state; acked ones where a rule keeps them."`
	Sort      string `enum:"name,ready,delayed,leased,dead,age" default:"name" help:"Order: name, from a to z; or ready, delayed, leased, dead or age, the largest first."`
	Limit     int    `default:"50" help:"Queues or jobs to list, at most 1024."`
	Filter    string `placeholder:"TEXT" help:"Only queues whose name contains this."`
}

// Run prints the list.
func (c *JobsLs) Run(ctx context.Context, s Streams) error {
	if c.Namespace == "" {
		return c.namespaces(ctx, s)
	}
	if c.Queue != "" {
		return c.jobs(ctx, s)
	}
	if c.State != "ready" {
		return misuse("state: it is of the jobs of a queue: name one")
	}
	sort := c.Sort
	if column, ok := map[string]string{"name": "queue", "age": "oldest_ready_age"}[sort]; ok {
		sort = column
	}
	var raw json.RawMessage
	call := c.namespace(c.Namespace).at("/queues").limit(c.Limit, 1024).set("sort",
		sort).set("search", c.Filter)
	if done, err := c.read(ctx, s, call, &raw); done {
		return err
	}
	list := gjson.ParseBytes(raw)
	queues := list.Get("queues").Array()
	if len(queues) == 0 {
		_ = s.tell("no such queue has jobs")
		return c.tellPaused(ctx, s, c.Namespace)
	}
	columns := "QUEUE ${queue}|>READY ${ready}|>DELAYED ${delayed_now}|>LEASED ${leased_now}|>DEAD ${dead}|>OLDEST READY ${oldest_ready_age_ms}|>ACKED ${acked}"
	if err := names(nil).table(columns, queues).print(s.Out); err != nil {
		return err
	}
	if rest := list.Get("total").Int() - int64(len(queues)); rest > 0 {
		_ = s.tell("%d more: see --limit, --filter and --sort", rest)
	}
	if left := list.Get("left_out").Int(); left > 0 {
		_ = s.tell("the order is that of the first 1024 queues by name: --filter finds the other %d", left)
	}
	return c.tellPaused(ctx, s, c.Namespace)
}

// jobs lists those of a queue, page by page.
func (c *JobsLs) jobs(ctx context.Context, s Streams) error {
	if c.Limit < 1 || c.Limit > 1024 {
		return misuse("limit: want 1 to 1024")
	}
	title := ">ATTEMPT"
	if waits(c.State) {
		title = ">NEXT ATTEMPT"
	}
	var list []gjson.Result
	var page admin.JobPage
	for left := c.Limit; ; left -= len(page.Jobs) {
		call := c.oneQueue(c.Namespace, c.Queue).at("/jobs").limit(min(left, 1000), 1000).set("state",
			c.State).set("after", page.Next)
		page = admin.JobPage{}
		raw, err := call.get(ctx, &page)
		if err != nil {
			return err
		}
		if c.Output == "json" {
			if err := printParts(s.Out, raw, "jobs"); err != nil {
				return err
			}
		}
		list = append(list, gjson.GetBytes(raw, "jobs").Array()...)
		if page.Next == "" || left <= len(page.Jobs) {
			break
		}
	}
	switch {
	case c.Output == "json":
		return nil
	case len(list) == 0:
		var q admin.QueueRow
		if _, err := c.oneQueue(c.Namespace, c.Queue).get(ctx, &q); err != nil || q.None() {
			return s.tell("no job is %s", c.State)
		}
		return s.tell(
			"no job is %s, but of the queue %d are ready, %d delayed, prepared or leased, %d dead, %s acked and kept: see --state",
			c.State,
			q.Ready,
			q.Pending,
			q.Dead,
			digitsOr(q.Acked, "0"),
		)
	}
	columns := "JOB ${id}|SINCE OR UNTIL ${since_or_until}|ERROR OR PROGRESS ${error_or_progress}|PUBLISHED ${published_ms}|" + title + " ${attempts}|>BYTES ${bytes}"
	if err := names(nil).table(columns, list).print(s.Out); err != nil || page.Next == "" {
		return err
	}
	return s.tell("there are more: see --limit")
}

func (c *JobsLs) namespaces(ctx context.Context, s Streams) error {
	var o admin.Overview
	raw, err := c.call("/api/v1/overview").within("limit", c.Limit, 1024).get(ctx, &o)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return printParts(s.Out, raw, "queues")
	}
	if len(o.Queues) == 0 {
		return s.tell("the service has no namespace of kind queue")
	}
	return names(nil).table(queuesColumns, troubled(raw, "queues")).print(s.Out)
}

// JobsForecast prints when delayed jobs and ticks come due.
type JobsForecast struct {
	command `embed:""`

	Namespace string        `arg:"" help:"The namespace."`
	Queue     string        `arg:"" optional:"" help:"The queue; without it, all of the namespace."`
	Step      time.Duration `default:"10m" help:"Length of a step, 1s or more."`
	Steps     int           `default:"24" help:"Number of steps, at most 1000."`
}

// Run prints a line a step that has any.
func (c *JobsForecast) Run(ctx context.Context, s Streams) error {
	if c.Step < time.Second || c.Steps < 1 || c.Steps > 1000 {
		return misuse("step: want 1s or more; steps: want 1 to 1000")
	}
	var answer verb.Forecast
	call := c.queue(c.Namespace, c.Queue).at("/forecast").set("step", c.Step.String()).set("steps", digits(c.Steps))
	if done, err := c.read(ctx, s, call, &answer); done {
		return err
	}
	t := newTable("FROM", "IN", ">JOBS", ">TICKS")
	jobs := int64(0)
	ticks := int64(0)
	at := func(list []int64, i int) int64 {
		if i < len(list) { // it ends with the last step that has any
			return list[i]
		}
		return 0
	}
	for i := range c.Steps {
		n, scheduled := at(answer.Due, i), at(answer.Scheduled, i)
		if jobs, ticks = jobs+n, ticks+scheduled; n+scheduled > 0 {
			t.add(clock(answer.NowMS+int64(i)*answer.StepMS),
				human.Since(int64(i)*answer.StepMS)+" to "+human.Since(int64(i+1)*answer.StepMS), digits(n), digits(scheduled))
		}
	}
	if jobs+ticks > 0 {
		if err := t.print(s.Out); err != nil {
			return err
		}
	}
	return s.tell("%s and %s come due within %s%s", human.Some(jobs, "delayed job", "delayed jobs"),
		human.Some(ticks, "tick of a schedule", "ticks of schedules"), human.Since(int64(c.Steps)*answer.StepMS),
		countedBy[answer.ScheduledBy])
}

// countedBy says how ticks were counted, unless each was.
var countedBy = map[string]string{
	schedule.ByEstimate: "; some ticks are estimated",
	schedule.ByNext:     "; of each schedule only the next tick, as there are too many schedules",
}
