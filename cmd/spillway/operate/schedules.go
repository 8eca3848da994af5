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
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

// Schedules has the commands for schedules.
type Schedules struct {
	Ls      SchedulesLs      `cmd:"" help:"List the schedules of a namespace, with their next tick and their account."`
	Get     SchedulesGet     `cmd:"" help:"Print one schedule: its next ticks, its account, its last runs and its specification."`
	Put     SchedulesPut     `cmd:"" help:"Make a schedule, or replace its specification."`
	Rm      SchedulesRm      `cmd:"" help:"Delete a schedule. Its jobs stay."`
	Pause   SchedulesPause   `cmd:"" help:"Stop a schedule from firing. Ticks in between count as paused."`
	Resume  SchedulesResume  `cmd:"" help:"Let a schedule fire again, from the next tick on."`
	Trigger SchedulesTrigger `cmd:"" help:"Publish a run now, beside the ticks."`
}

// SchedulesLs lists.
type SchedulesLs struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace, of kind queue."`
	Limit     int    `default:"100" help:"Schedules to list, at most 1000."`
	After     string `placeholder:"QUEUE/NAME" help:"Go on where a list ended."`
}

// Run prints the list.
func (c *SchedulesLs) Run(ctx context.Context, s Streams) error {
	var list admin.ScheduleList
	call := c.namespace(c.Namespace).at("/schedules").limit(c.Limit, 1000).set("after", c.After)
	if done, err := c.read(ctx, s, call, &list); done {
		return err
	}
	if len(list.Schedules) == 0 {
		return s.tell("no schedules")
	}
	t := newTable("QUEUE", "SCHEDULE", "STATE", "NEXT", ">FIRED", ">MISSED", ">OVERLAPPED", ">PAUSED", "LAST")
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

// ofSchedule are the arguments of a command for one schedule.
type ofSchedule struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace, of kind queue."`
	Queue     string `arg:"" help:"The queue."`
	Schedule  string `arg:"" help:"The schedule."`
}

func (c *ofSchedule) at(route string) *call {
	call := c.queue(c.Namespace, c.Queue).named("queue", c.Queue)
	if !job.ValidScheduleName(c.Schedule) {
		call.check(usageError{fmt.Errorf("%s is not the name of a schedule", quote(c.Schedule))})
	}
	return call.at("/schedules/" + c.Schedule + route)
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
	text, err := specification(s, c.File)
	if err != nil {
		return err
	}
	if call := c.at("/put"); call.err != nil {
		return call.err
	}
	spec, err := schedule.Parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	if c.DryRun {
		next := spec.Times(time.Now(), 10)
		return c.print(s, json.RawMessage(fmt.Sprintf(`{"next":["%s"]}`, strings.Join(next, `","`))),
			strings.Join(next, "\n"))
	}
	var answer admin.SchedulePut
	raw, err := c.at("/put").post(ctx, json.RawMessage(text), &answer)
	if err != nil {
		return err
	}
	return c.print(s, raw, fmt.Sprintf("%s/%s: %s, rev %d, next %s", c.Queue, c.Schedule, answer.Result,
		answer.Rev, strings.Join(answer.Next[:min(1, len(answer.Next))], "")))
}

// specification is a file's as JSON.
func specification(s Streams, path string) (text []byte, err error) {
	if path == "-" {
		text, err = io.ReadAll(io.LimitReader(s.In, schedule.MaxSpec+1))
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil || json.Valid(text) {
		return text, err
	}
	var value map[string]any
	if err := yaml.Unmarshal(text, &value); err != nil {
		return nil, fmt.Errorf("%s: neither JSON nor YAML: %w", path, err)
	}
	if text, err = json.Marshal(value); err != nil {
		return nil, errors.New("keys are text")
	}
	return text, nil
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
		func() string { return "published " + some(int64(answer.Jobs), "job", "jobs") })
}
