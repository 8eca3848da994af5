package verb

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

type ofQueue struct {
	Queue string `arg:"" help:"The queue."`
}

type ofSchedule struct {
	ofQueue
	Schedule string `arg:"" help:"The schedule."`
}

func (q *ofSchedule) Detail() string { return "schedule " + q.Schedule }

type listSchedules struct {
	Queue   string `placeholder:"QUEUE" help:"Only those of this queue."`
	Owner   string `placeholder:"OWNER" help:"Only those that this service registered."`
	Failing bool   `help:"Only those that missed ticks, or whose service was gone, or with jobs that did not end well."`
	Limit   int    `default:"100" bounds:"1..1000" help:"Schedules to list, at most 1000."`
	After   string `placeholder:"NEXT" help:"Go on where a list ended."`
}

type scheduleList struct {
	Schedules []schedule.Shown `json:"schedules"`
	Next      string           `json:"next,omitempty" help:"The after of the next page; absent: this is the last."`
}

// filtered is how many a page of those that match looks at: the page may be short, or empty, and
// still have a next one.
const filtered = 1000

// schedules lists them by queue and name.
func schedules(ctx context.Context, c *Call, q *listSchedules) (answer scheduleList, err error) {
	look := q.Limit
	if q.Owner != "" || q.Failing {
		look = filtered
	}
	list, more, err := c.schedules.Schedules(ctx, c.Namespace, q.Queue, strings.TrimPrefix(q.After, q.Queue+"/"), look)
	answer.Schedules = []schedule.Shown{}
	last := ""
	for _, found := range list {
		if len(answer.Schedules) == q.Limit {
			more = true
			break
		}
		if last = found.Name; q.Queue == "" {
			last = found.Queue + "/" + found.Name
		}
		if q.Owner != "" && schedule.OwnerOf(found.Spec) != q.Owner || q.Failing && !schedule.Failing(found.State) {
			continue
		}
		if shown, err := schedule.Describe(c.Namespace, found); err == nil {
			shown.Spec = c.Mask(shown.Spec)
			answer.Schedules = append(answer.Schedules, shown)
		}
	}
	if more {
		answer.Next = last
	}
	return answer, err
}

func getSchedule(ctx context.Context, c *Call, q *ofSchedule) (schedule.Shown, error) {
	found, err := c.schedules.GetSchedule(ctx, c.Namespace, q.Queue, q.Schedule)
	if err != nil {
		return schedule.Shown{}, err
	}
	shown, err := schedule.Describe(c.Namespace, found)
	shown.Spec = c.Mask(shown.Spec)
	return shown, err
}

type putSchedule struct {
	ofSchedule
	Rev  string          `header:"If-Match" placeholder:"REV" help:"Replace this revision only."`
	File json.RawMessage `short:"f" required:"" type:"filecontent" placeholder:"FILE" help:"The specification, YAML or JSON; - is stdin." schema:"Schedule"`
}

type schedulePut struct {
	Result string   `json:"result" help:"created, replaced or unchanged"`
	Rev    int64    `json:"rev"`
	Next   []string `json:"next" help:"The next ticks."`
}

// Created reports whether there was none.
func (p schedulePut) Created() bool { return p.Result == job.Created.String() }

func put(ctx context.Context, c *Call, q *putSchedule) (answer schedulePut, err error) {
	var revision int64
	if text := strings.Trim(q.Rev, `"`); text != "" && text != "*" {
		if revision, err = strconv.ParseInt(text, 10, 64); err != nil || revision < 1 {
			return answer, wire.Rejectf(wire.CodeBadHeader, "If-Match is the rev of a schedule")
		}
	}
	spec, err := schedule.Parse(q.File)
	if err == nil {
		err = c.fits(spec)
	}
	if err != nil {
		return answer, err
	}
	p, err := schedule.Put(ctx, c.schedules, c.Namespace, q.Queue, q.Schedule, spec, revision)
	if err != nil {
		return answer, err
	}
	answer = schedulePut{p.Result.String(), p.Revision, []string{}}
	if p.First > 0 {
		answer.Next = spec.Times(time.UnixMilli(p.First-1), schedule.ShownTimes)
	}
	return answer, nil
}

// fits checks that a run of a schedule is no larger than a publish may be, and notes whose it is.
func (c *Call) fits(spec *schedule.Spec) error {
	if !c.Affords(spec.Counts()) {
		return wire.Rejectf(wire.CodeTooManyEntries,
			"a run has more jobs than the token's rate ever allows at once: send a smaller shards, or raise the rate")
	}
	spec.By = c.Token
	return spec.Within(c.Limits)
}

type deleted struct {
	Result string `json:"result"`
}

func deleteSchedule(ctx context.Context, c *Call, q *ofSchedule) (deleted, error) {
	return deleted{"deleted"}, schedule.Delete(ctx, c.schedules, c.Namespace, q.Queue, q.Schedule)
}

type scheduleState struct {
	State   string `json:"state"`
	Changed bool   `json:"changed"`
	Rev     int64  `json:"rev"`
}

func setState(state string) func(context.Context, *Call, *ofSchedule) (scheduleState, error) {
	return func(ctx context.Context, c *Call, q *ofSchedule) (scheduleState, error) {
		changed, rev, err := c.schedules.PauseSchedule(ctx, c.Namespace, q.Queue, q.Schedule, state == "paused")
		return scheduleState{state, changed, rev}, err
	}
}

type triggerSchedule struct {
	ofSchedule
	Force bool   `help:"Also while a job of the last run is unfinished."`
	Key   string `kong:"-" header:"Idempotency-Key" help:"The same key publishes once."`
}

type published struct {
	Accepted int      `json:"accepted"`
	Repeated bool     `json:"repeated,omitempty"`
	IDs      []string `json:"ids"`
}

// trigger publishes a run now.
func trigger(ctx context.Context, c *Call, q *triggerSchedule) (answer published, err error) {
	if q.Key != "" && !wire.ValidIdempotencyKey([]byte(q.Key)) {
		return answer, wire.Rejectf(wire.CodeBadHeader, "Idempotency-Key is 1 to 128 printable ASCII characters")
	}
	t := &job.Trigger{Namespace: c.Namespace, Queue: q.Queue, Name: q.Schedule, Key: q.Key}
	if err := c.runNow(ctx, t, q.Force); err != nil {
		if t.Runs = (job.Runs{}); t.Key == "" || c.schedules.Trigger(ctx, t) != nil { // nor did it before
			return answer, err
		}
	}
	answer = published{t.Count, t.Repeated, []string{}}
	for i := range t.Count {
		answer.IDs = append(answer.IDs, c.Namespace.ID(c.Namespace.ScheduleShard(q.Queue), q.Queue, t.First+int64(i), ""))
	}
	return answer, nil
}

// runNow publishes a run of a schedule as it is now.
func (c *Call) runNow(ctx context.Context, t *job.Trigger, force bool) error {
	spec, err := schedule.Stored(ctx, c.schedules, t.Namespace, t.Queue, t.Name)
	if err != nil {
		return err
	}
	now, err := c.schedules.Clock(ctx, t.Namespace, t.Queue)
	if err != nil {
		return err
	}
	if err := c.Spend(spec.Counts()); err != nil {
		return err
	}
	t.Finished = !force && spec.Overlap != "" && spec.Overlap != "allow"
	t.Runs = spec.Runs(t.Name, []int64{now}, 't')
	return c.schedules.Trigger(ctx, t)
}

type backfillSchedule struct {
	ofSchedule
	Approval
	From time.Time `required:"" placeholder:"TIME" help:"The first time, RFC 3339, such as 2026-12-01T00:00:00Z."`
	To   time.Time `required:"" placeholder:"TIME" help:"The end, RFC 3339, not included. The range has 1000 ticks at most."`
}

type backfilled struct {
	DryRun   bool  `json:"dry_run,omitempty"`
	Ticks    int   `json:"ticks" help:"In the range."`
	Accepted int   `json:"accepted" help:"Jobs that were published now: a repeat within a day publishes what is missing."`
	Jobs     int64 `json:"jobs,omitempty" help:"With dry_run: jobs of all the ticks."`
}

func backfill(ctx context.Context, c *Call, q *backfillSchedule) (answer backfilled, err error) {
	if !q.To.After(q.From) {
		return answer, wire.Reject(wire.CodeBadTo)
	}
	spec, err := schedule.Stored(ctx, c.schedules, c.Namespace, q.Queue, q.Schedule)
	if err != nil {
		return answer, err
	}
	b := &schedule.Backfill{
		Namespace: c.Namespace,
		Queue:     q.Queue,
		Name:      q.Schedule,
		From:      q.From,
		To:        q.To,
		Spec:      spec,
	}
	ticks, err := b.Ticks()
	jobs := int64(len(ticks) * spec.Jobs())
	if err == nil {
		err = q.allows(jobs)
	}
	if err != nil || q.DryRun {
		return backfilled{true, len(ticks), 0, jobs}, err
	}
	err = b.Publish(ctx, c.schedules, ticks, c.Spend)
	return backfilled{Ticks: len(ticks), Accepted: b.Accepted}, err
}

type ticks struct {
	Count int       `default:"10" bounds:"1..1000" help:"Ticks to print, at most 1000."`
	From  time.Time `placeholder:"TIME" help:"Ticks after this time, RFC 3339. Default now."`
}

func (t ticks) of(spec *schedule.Spec) times {
	if t.From.IsZero() {
		t.From = time.Now()
	}
	return times{spec.Times(t.From, t.Count)}
}

type times struct {
	Next []string `json:"next" help:"In the zone of the schedule."`
}

type scheduleTimes struct {
	ofSchedule
	ticks
}

func timesOfSchedule(ctx context.Context, c *Call, q *scheduleTimes) (times, error) {
	spec, err := schedule.Stored(ctx, c.schedules, c.Namespace, q.Queue, q.Schedule)
	if err != nil {
		return times{}, err
	}
	return q.of(spec), nil
}

type specTimes struct {
	ticks
	File json.RawMessage `schema:"Schedule"`
}

func timesOfSpec(_ context.Context, _ *Call, q *specTimes) (times, error) {
	spec, err := schedule.Parse(q.File)
	if err != nil {
		return times{}, err
	}
	return q.of(spec), nil
}

const one = "/queues/{queue}/schedules/{schedule}"

var scheduleRows = []*Row{
	New("all_schedules", "viewer", "GET /schedules", "schedules ls",
		"List the schedules of a namespace by queue and name, with their next tick and their account.",
		"schedules -> QUEUE ${queue}|SCHEDULE ${name}|STATE ${state}|NEXT ${next.0}|>FIRED ${ticks.fired}|>MISSED ${ticks.missed}|"+
			">OVERLAPPED ${ticks.overlapped}|>PAUSED ${ticks.paused}|LAST ${last.0.cause} ${last.0.at_ms}", schedules),
	New("schedules", "operator", "GET /queues/{queue}/schedules", "",
		"List the schedules of a queue by name, with their specifications.", "", schedules).Masks(),
	New("schedule", "operator", "GET "+one, "schedules get",
		"Print one schedule: its next ticks, its account, its last runs and its specification.",
		"schedule ${queue}/${name}|state ${state}|rev ${rev}|next ${next}|ticks ${ticks}|runs ${last}|spec ${spec}", getSchedule).Masks(),
	New("put_schedule", "operator", "PUT "+one, "schedules put",
		"Make a schedule, or replace its specification. What is due by the one before fires first.",
		"${queue}/${schedule}: ${result}, rev ${rev}, next ${next.0}", put).publishes(),
	New("delete_schedule", "operator", "DELETE "+one, "schedules rm",
		"Delete a schedule. Its jobs stay.", "${queue}/${schedule}: ${result}", deleteSchedule),
	New("pause_schedule", "operator", "POST "+one+"/pause", "schedules pause",
		"Stop a schedule from firing. Ticks in between count as paused.", "${queue}/${schedule}: ${state}", setState("paused")),
	New("resume_schedule", "operator", "POST "+one+"/resume", "schedules resume",
		"Let a schedule fire again, from the next tick on.", "${queue}/${schedule}: ${state}", setState("active")),
	New("trigger_schedule", "operator", "POST "+one+"/trigger", "schedules trigger",
		"Publish a run now, beside the ticks, also of one that is paused or ended.",
		"${queue}/${schedule}: published ${accepted job}", trigger).publishes(),
	New("backfill_schedule", "operator", "POST "+one+"/backfill", "schedules backfill",
		"Publish a run for each tick of a range. A repeat within a day publishes only what is missing.",
		"${queue}/${schedule}: ${ticks tick}, published ${accepted job}", backfill).publishes().Confirms("publish them", "the range has no tick"),
	New("schedule_times", "viewer", "GET "+one+"/times", "schedules times",
		"Print the ticks to come of a schedule, whatever its state.", "${next}", timesOfSchedule),
	New("times", "", "POST /times", "", "The ticks of a specification. It stores nothing.", "", timesOfSpec),
}
