package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/human"
	"github.com/spillway-io/spillway/partition/schedule"
)

// Schedules has the commands for schedules.
type Schedules struct {
	Ls       SchedulesLs       `cmd:"" help:"List the schedules of a namespace, with their next tick and their account."`
	Get      SchedulesGet      `cmd:"" help:"Print one schedule: its next ticks, its account, its last runs and its specification."`
	Put      SchedulesPut      `cmd:"" help:"Make a schedule, or replace its specification."`
	Rm       SchedulesRm       `cmd:"" help:"Delete a schedule. Its jobs stay."`
	Pause    SchedulesPause    `cmd:"" help:"Stop a schedule from firing. Ticks in between count as paused."`
	Resume   SchedulesResume   `cmd:"" help:"Let a schedule fire again, from the next tick on."`
	Trigger  SchedulesTrigger  `cmd:"" help:"Publish a run now, beside the ticks."`
	Backfill SchedulesBackfill `cmd:"" help:"Publish a run for each tick of a range. It counts them first and asks."`
	Times    SchedulesTimes    `cmd:"" help:"Print the ticks to come, of a specification or of a schedule."`
	Owners   SchedulesOwners   `cmd:"" help:"List the services that registered schedules, and whether they live."`
}

// SchedulesLs lists.
type SchedulesLs struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace, of kind queue."`
	Queue     string `placeholder:"QUEUE" help:"Only those of this queue."`
	Owner     string `placeholder:"OWNER" help:"Only those that this service registered."`
	Failing   bool   `help:"Only those that missed ticks, or whose service was gone, or with jobs that did not end well."`
	Limit     int    `default:"100" help:"Schedules to list, at most 1000."`
	After     string `placeholder:"QUEUE/NAME" help:"Go on where a list ended."`
}

// Run prints the list.
func (c *SchedulesLs) Run(ctx context.Context, s Streams) error {
	var list admin.ScheduleList
	call := c.namespace(c.Namespace).at("/schedules").limit(c.Limit, 1000).set("after", c.After).
		set("queue", c.Queue).set("owner", c.Owner).on("failing", c.Failing)
	if done, err := c.read(ctx, s, call, &list); done {
		return err
	}
	if len(list.Schedules) == 0 && list.Next == "" {
		return s.tell("no schedules")
	}
	t := newTable("QUEUE", "SCHEDULE", "STATE", "NEXT", ">FIRED", ">MISSED", ">OVERLAPPED",
		">PAUSED", "LAST")
	for _, l := range list.Schedules {
		next, last := "-", "-"
		if len(l.Next) > 0 {
			next = l.Next[0]
		}
		if len(l.Last) > 0 {
			last = l.Last[0].Cause + " " + clock(l.Last[0].AtMS)
		}
		t.add(l.Queue, l.Name, l.State, next, digits(l.Ticks.Fired), digits(l.Ticks.Missed),
			digits(l.Ticks.Overlapped), digits(l.Ticks.Paused), last)
	}
	if err := t.print(s.Out); err != nil || list.Next == "" {
		return err
	}
	return s.tell("for more: --after %s", escape(list.Next))
}

// SchedulesOwners lists services.
type SchedulesOwners struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace, of kind queue."`
}

// Run prints the list.
func (c *SchedulesOwners) Run(ctx context.Context, s Streams) error {
	var list schedule.OwnerList
	if done, err := c.read(ctx, s, c.namespace(c.Namespace).at("/owners"), &list); done {
		return err
	}
	if len(list.Owners) == 0 {
		return s.tell("no service registered schedules")
	}
	t := newTable("OWNER", "STATE", "VERSION", "UNTIL", ">SCHEDULES")
	for _, o := range list.Owners {
		t.add(o.Owner, o.State, digits(o.Version), clock(o.UntilMS), digits(o.Owns))
	}
	return t.print(s.Out)
}

// ofSchedule are the arguments of a command for one schedule.
type ofSchedule struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace, of kind queue."`
	Queue     string `arg:"" help:"The queue."`
	Schedule  string `arg:"" help:"The schedule."`
}

func (c *ofSchedule) at(route string) *call {
	return c.schedule(c.Namespace, c.Queue, c.Schedule).at(route)
}

// act posts, and prints what was done.
func (c *ofSchedule) act(ctx context.Context, s Streams, route string, answer any,
	done func() string) error {
	raw, err := c.at(route).post(ctx, struct{}{}, answer)
	if err != nil {
		return err
	}
	return c.print(s, raw, c.Queue+"/"+c.Schedule+": "+done())
}

// SchedulesGet prints one.
type SchedulesGet struct {
	ofSchedule `embed:""`

	Unmasked bool `help:"Show the values of masked fields. Needs the role admin."`
}

// Run prints it.
func (c *SchedulesGet) Run(ctx context.Context, s Streams) error {
	var l schedule.Shown
	if done, err := c.read(ctx, s, c.at("").on("unmasked", c.Unmasked), &l); done {
		return err
	}
	t := l.Ticks
	lines := []string{"schedule", l.Queue + "/" + l.Name, "state", l.State, "rev", digits(l.Rev), "next",
		strings.Join(l.Next, "  "), "ticks",
		fmt.Sprintf("%d: %d fired, %d missed, %d overlapped, %d paused, %d unregistered, %d superseded, %d waiting",
			t.Total, t.Fired, t.Missed, t.Overlapped, t.Paused, t.Unregistered, t.Superseded, t.Waiting)}
	for _, run := range l.Last {
		lines = append(lines, "run", clock(run.AtMS)+"  "+run.Cause+"  tick "+run.Tick+"  "+strings.Join(run.IDs, " "))
	}
	return details(append(lines, "spec", compact(l.Spec))...).print(s.Out)
}

// SchedulesPut makes one.
type SchedulesPut struct {
	ofSchedule `embed:""`

	File   string `short:"f" required:"" placeholder:"FILE" help:"The specification, YAML or JSON; - is stdin."`
	DryRun bool   `help:"Print the next ticks only, and send nothing."`
}

// Run makes it.
func (c *SchedulesPut) Run(ctx context.Context, s Streams) error {
	if call := c.at("/put"); call.err != nil {
		return call.err
	}
	text, spec, err := specification(s, c.File)
	if err != nil {
		return err
	}
	if c.DryRun {
		return c.printTimes(s, spec.Times(time.Now(), 10))
	}
	var answer admin.SchedulePut
	raw, err := c.at("/put").post(ctx, json.RawMessage(text), &answer)
	if err != nil {
		return err
	}
	return c.print(s, raw, fmt.Sprintf("%s/%s: %s, rev %d, next %s", c.Queue, c.Schedule, answer.Result,
		answer.Rev, strings.Join(answer.Next[:min(1, len(answer.Next))], "")))
}

// specification reads a file, and returns it as JSON, too.
func specification(s Streams, path string) (text []byte, spec *schedule.Spec, err error) {
	if path == "-" {
		text, err = io.ReadAll(io.LimitReader(s.In, schedule.MaxSpec+1))
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, nil, err
	}
	if !json.Valid(text) {
		var value map[string]any
		if err := yaml.Unmarshal(text, &value); err != nil {
			return nil, nil, fmt.Errorf("%s: neither JSON nor YAML: %w", path, err)
		}
		if text, err = json.Marshal(value); err != nil {
			return nil, nil, errors.New("keys are text")
		}
	}
	if spec, err = schedule.Parse(text); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, spec, nil
}

func (o *output) printTimes(s Streams, next []string) error {
	return o.print(s, admin.ScheduleTimes{Next: next}, strings.Join(next, "\n"))
}

// SchedulesRm deletes one.
type SchedulesRm struct {
	ofSchedule `embed:""`
}

// Run deletes it.
func (c *SchedulesRm) Run(ctx context.Context, s Streams) error {
	return c.act(ctx, s, "/delete", &struct{}{}, func() string { return "deleted" })
}

// SchedulesPause pauses one.
type SchedulesPause struct {
	ofSchedule `embed:""`
}

// Run pauses it.
func (c *SchedulesPause) Run(ctx context.Context, s Streams) error {
	return c.act(ctx, s, "/pause", &struct{}{}, func() string { return "paused" })
}

// SchedulesResume resumes one.
type SchedulesResume struct {
	ofSchedule `embed:""`
}

// Run resumes it.
func (c *SchedulesResume) Run(ctx context.Context, s Streams) error {
	return c.act(ctx, s, "/resume", &struct{}{}, func() string { return "active" })
}

// SchedulesTrigger runs one.
type SchedulesTrigger struct {
	ofSchedule `embed:""`
}

// Run publishes a run.
func (c *SchedulesTrigger) Run(ctx context.Context, s Streams) error {
	var answer admin.ScheduleRun
	return c.act(ctx, s, "/trigger", &answer,
		func() string { return "published " + human.Some(int64(answer.Jobs), "job", "jobs") })
}

// SchedulesBackfill runs ticks of a range.
type SchedulesBackfill struct {
	ofSchedule `embed:""`
	consent    `embed:""`

	From time.Time `required:"" placeholder:"TIME" help:"The first time, RFC 3339, such as 2026-12-01T00:00:00Z."`
	To   time.Time `required:"" placeholder:"TIME" help:"The end, RFC 3339, not included. The range has 1000 ticks at most."`
}

// Run counts, asks and publishes.
func (c *SchedulesBackfill) Run(ctx context.Context, s Streams) error {
	request := admin.BackfillRequest{From: c.From, To: c.To, Approval: admin.Approval{DryRun: true}}
	var found, done admin.Backfilled
	raw, err := c.at("/backfill").post(ctx, &request, &found)
	if err != nil {
		return err
	}
	to := c.Queue + "/" + c.Schedule + ": "
	_ = s.tell("%sfound %s, %s", to, human.Some(int64(found.Ticks), "tick", "ticks"),
		human.Some(found.Jobs, "job", "jobs"))
	if c.DryRun || found.Ticks == 0 {
		return c.print(s, raw, to+"nothing was published")
	}
	if err := c.ask(ctx, s, found.Jobs, "publish them"); err != nil {
		return err
	}
	request.Approval = admin.Approval{Confirm: &found.Jobs}
	if raw, err = c.at("/backfill").post(ctx, &request, &done); err != nil {
		return fmt.Errorf("%w; run it again: it goes on where this ended", err)
	}
	return c.print(s, raw, to+"published "+human.Some(done.Jobs, "job", "jobs"))
}

// SchedulesTimes prints ticks.
type SchedulesTimes struct {
	command `embed:""`

	Namespace string    `arg:"" optional:"" help:"The namespace of a schedule; not with -f."`
	Queue     string    `arg:"" optional:"" help:"Its queue."`
	Schedule  string    `arg:"" optional:"" help:"Its name."`
	File      string    `short:"f" placeholder:"FILE" help:"A specification, YAML or JSON; - is stdin. No service is asked."`
	Count     int       `default:"10" help:"Ticks to print, at most 1000."`
	From      time.Time `placeholder:"TIME" help:"Ticks after this time, RFC 3339. Default now."`
}

// Run prints them.
func (c *SchedulesTimes) Run(ctx context.Context, s Streams) error {
	switch {
	case (c.File == "") == (c.Namespace == ""):
		return misuse("name a schedule by namespace, queue and name, or a file with -f")
	case c.Count < 1 || c.Count > 1000:
		return misuse("count: %d: want 1 to 1000", c.Count)
	case c.File != "":
		_, spec, err := specification(s, c.File)
		if err != nil {
			return err
		}
		from := c.From
		if from.IsZero() {
			from = time.Now()
		}
		return c.printTimes(s, spec.Times(from, c.Count))
	}
	of := ofSchedule{command: c.command, Namespace: c.Namespace, Queue: c.Queue, Schedule: c.Schedule}
	call := of.at("/times").set("count", digits(c.Count))
	if !c.From.IsZero() {
		call.set("from", c.From.Format(time.RFC3339))
	}
	var times admin.ScheduleTimes
	if done, err := c.read(ctx, s, call, &times); done {
		return err
	}
	return c.printTimes(s, times.Next)
}
