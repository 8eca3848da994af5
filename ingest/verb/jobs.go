package verb

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

type ofJob struct {
	ofQueue
	Job string `arg:"" help:"Id of the job."`
}

// Detail is bounded, as it may be no id.
func (q *ofJob) Detail() string { return q.Job[:min(len(q.Job), 255)] }

// ref is the job, or job.ErrNoJob where no job has such an id.
func (q *ofJob) ref(c *Call) (job.Ref, error) {
	ref, exists := c.Namespace.ParseID(q.Queue, q.Job)
	if !exists {
		return ref, job.ErrNoJob
	}
	return ref, nil
}

// edits is ref, and the store that changes it.
func (q *ofJob) edits(c *Call) (job.Edits, job.Ref, error) {
	jobs, err := job.As[job.Edits](c.Store)
	if err != nil {
		return nil, job.Ref{}, err
	}
	ref, err := q.ref(c)
	return jobs, ref, err
}

type jobState struct {
	State string `json:"state"`
}

// Count is how many jobs it was done to.
func (s jobState) Count() int64 { return int64(min(1, len(s.State))) }

// promote makes a delayed job ready now.
func promote(ctx context.Context, c *Call, q *ofJob) (jobState, error) {
	jobs, ref, err := q.edits(c)
	if err == nil {
		err = jobs.Reschedule(ctx, &job.Reschedule{Namespace: c.Namespace, Queue: q.Queue, Ref: ref, Promote: true})
	}
	if err != nil {
		return jobState{}, err
	}
	return jobState{job.Ready.String()}, nil
}

// deleteJob deletes a job, in whatever state: who has it claimed finds it gone.
func deleteJob(ctx context.Context, c *Call, q *ofJob) (jobState, error) {
	ref, err := q.ref(c)
	if err != nil {
		return jobState{}, err
	}
	ack := &job.Ack{Namespace: c.Namespace, Queue: q.Queue, Ref: ref, Delete: true, Undone: true, By: c.By}
	c.Store.Run(ctx, c.Store.NewLane(), &job.Batch{Acks: []*job.Ack{ack}})
	switch {
	case ack.Err != nil:
		return jobState{}, ack.Err
	case !ack.Acked && !ack.Deleted:
		return jobState{}, job.ErrNoJob
	}
	return jobState{"deleted"}, nil
}

type decided struct {
	Result string `json:"result"`
	DueMS  int64  `json:"due_ms,omitempty" help:"When it is ready."`
}

func (d decided) Count() int64 { return int64(min(1, len(d.Result))) }

// decide commits a prepared job for its publisher, or rolls it back.
func decide(result string) func(context.Context, *Call, *ofJob) (decided, error) {
	return func(ctx context.Context, c *Call, q *ofJob) (decided, error) {
		jobs, ref, err := q.edits(c)
		d := &job.Decision{Namespace: c.Namespace, Queue: q.Queue, Ref: ref, Rollback: result == "rolled_back"}
		if err == nil {
			err = jobs.Decide(ctx, d)
		}
		if err != nil {
			return decided{}, err
		}
		if d.State != job.Delayed {
			d.Due = 0
		}
		return decided{result, d.Due}, nil
	}
}

type purge struct {
	ofQueue
	Approval
	All bool `help:"Also delete delayed, leased and dead jobs."`
}

func (q *purge) Detail() string {
	state := "ready"
	if q.All {
		state = "all"
	}
	return fmt.Sprintf("state %s, confirmed %d", state, q.Confirm)
}

type acted struct {
	DryRun   bool  `json:"dry_run"`
	Jobs     int64 `json:"jobs"`
	Complete bool  `json:"complete" help:"It ran to its end."`
	Others   int64 `json:"others,omitempty" help:"With dry_run of a purge: jobs that are delayed, leased or dead, and stay."`
}

func (a acted) Count() int64 { return a.Jobs }

// Partial reports whether the answer says that it did not run to its end.
func (a acted) Partial() bool { return !a.Complete }

// purgeJobs deletes the ready jobs of a queue, or all of them, and may also delete those that arrive
// meanwhile. It is rejected when there are more at its beginning than were confirmed.
func purgeJobs(ctx context.Context, c *Call, q *purge) (acted, error) {
	counts, err := c.Counts(ctx, q.Queue)
	n, others := counts.Ready, counts.Pending+counts.Dead
	if q.All {
		n, others = n+others, 0
	}
	if err == nil {
		err = q.allows(n)
	}
	if err != nil || q.DryRun {
		return acted{true, n, true, others}, err
	}
	n, err = c.Store.Purge(ctx, c.Namespace, q.Queue, q.All)
	return acted{Jobs: n, Complete: err == nil}, err
}

type deadJobs struct {
	ofQueue
	Approval
	IDs    []string      `arg:"" optional:"" help:"Ids of dead letters, 1000 at most. Without one, all that the rest selects."`
	Limit  int           `placeholder:"N" bounds:"0..2147483647" help:"At most this many, the oldest first. Without it, all."`
	Reason *string       `enum:"nacked,lapsed,buried,undecided" placeholder:"REASON" help:"Only those that died for this reason: nacked, lapsed, buried or undecided."`
	Error  *string       `placeholder:"TEXT" help:"Only those whose last error has this in it."`
	Age    time.Duration `placeholder:"DURATION" bounds:"0s..1193046h" help:"Only those that have been dead at least this long."`
	Cause  *string       `placeholder:"CAUSE" help:"Only those of this cause, as jobs dead --by cause prints it, or of what one of them says; then only --limit selects more. Not of PHP's queues."`
}

// Detail is what they selected.
func (q *deadJobs) Detail() (text string) {
	if q.Reason != nil {
		text += "reason " + *q.Reason + ", "
	}
	if q.Error != nil {
		text += fmt.Sprintf("error %.64q, ", *q.Error)
	}
	if q.Age > 0 {
		text += fmt.Sprintf("age %s, ", q.Age)
	}
	if q.Cause != nil {
		text += fmt.Sprintf("cause %.64q, ", *q.Cause)
	}
	if len(q.IDs) > 0 {
		text += fmt.Sprintf("%d by id, ", len(q.IDs))
	}
	return text + fmt.Sprintf("confirmed %d", q.Confirm)
}

// act is what is asked, for as many dead letters as were confirmed at most.
func (q *deadJobs) act(c *Call, verb job.DeadVerb) (*job.DeadAct, error) {
	a := &job.DeadAct{Namespace: c.Namespace, Queue: q.Queue, Verb: verb, Age: q.Age, Limit: math.MaxInt32}
	if q.Reason != nil {
		a.Reason = job.ReasonOf(*q.Reason)
	}
	if q.Error != nil {
		a.Error = *q.Error
	}
	switch {
	case len(a.Error) > job.MaxError:
		return nil, wire.Reject(wire.CodeBadError)
	case len(q.IDs) > 0 && (q.Limit > 0 || a.Selects()):
		return nil, wire.Rejectf(wire.CodeBadParameter, "name dead letters by their ids, or select some by limit, reason, error and age")
	case len(q.IDs) > job.MaxNamed:
		return nil, wire.Rejectf(wire.CodeBadParameter, "ids are %d at most", job.MaxNamed)
	case q.Cause != nil && len(*q.Cause) > job.MaxError:
		return nil, wire.Rejectf(wire.CodeBadParameter, "cause is %d bytes at most", job.MaxError)
	case q.Cause != nil && (len(q.IDs) > 0 || a.Selects()):
		return nil, wire.Rejectf(wire.CodeBadParameter, "cause selects dead letters with nothing but limit")
	case q.Cause != nil && c.Namespace.PHP:
		return nil, job.ErrOtherKind
	}
	for _, id := range q.IDs {
		ref, ok := c.Namespace.ParseID(q.Queue, id)
		if !ok {
			return nil, wire.Rejectf(wire.CodeBadID, "%.64q is the id of no job of the queue", id)
		}
		a.Named = append(a.Named, ref)
	}
	if most := q.Most(int64(q.Limit)); most > 0 {
		a.Limit = int(min(most, int64(a.Limit)))
	}
	return a, nil
}

func (q *deadJobs) do(ctx context.Context, c *Call, verb job.DeadVerb, ttl time.Duration) (acted, error) {
	a, err := q.act(c, verb)
	if err != nil {
		return acted{}, err
	}
	a.TTL = ttl
	act := c.Store.ActOnDead
	if q.Cause != nil {
		act = func(ctx context.Context, a *job.DeadAct) (int, error) { return c.ByCause(ctx, a, *q.Cause) }
	}
	if q.DryRun && q.Cause == nil && !a.Selects() {
		counts, err := c.Counts(ctx, q.Queue)
		return acted{DryRun: true, Jobs: min(counts.Dead, int64(a.Limit)), Complete: true}, err
	}
	if q.DryRun || a.Named != nil { // the store bounds the others
		count := *a
		count.Verb = job.CountDead
		n, err := act(ctx, &count)
		if err == nil {
			err = q.allows(int64(n))
		}
		if q.DryRun {
			return acted{DryRun: true, Jobs: int64(n), Complete: err == nil}, err
		}
		if err != nil {
			return acted{}, err
		}
	}
	n, err := act(ctx, a)
	return acted{Jobs: int64(n), Complete: err == nil}, err
}

func deleteDead(ctx context.Context, c *Call, q *deadJobs) (acted, error) {
	return q.do(ctx, c, job.DeleteDead, 0)
}

type respawn struct {
	deadJobs
	TTL time.Duration `bounds:"0s..1193046h" default:"0" help:"How long they live from then on; 0 is for ever. It replaces the ttl of their publish."`
}

func respawnDead(ctx context.Context, c *Call, q *respawn) (acted, error) {
	return q.do(ctx, c, job.RespawnDead, q.TTL)
}

type forecast struct {
	Step  time.Duration `default:"10m" bounds:"1s..720h" help:"Length of a step."`
	Steps int           `default:"144" bounds:"1..1000" help:"Number of steps."`
}

type queueForecast struct {
	ofQueue
	forecast
}

// Forecast is how many delayed jobs, and ticks of schedules, come due when.
type Forecast struct {
	NowMS       int64   `json:"now_ms"`
	StepMS      int64   `json:"step_ms"`
	Due         []int64 `json:"due" help:"Jobs in each step from now on, up to the last that has any; the first includes those already due."`
	Scheduled   []int64 `json:"scheduled" help:"Ticks of active schedules in the same way, jitter left out."`
	ScheduledBy string  `json:"scheduled_by" help:"How they were counted: ticks, each one; estimate, the later ones of some cron expressions by the rate of the earlier ones; next, of more than 10,000 schedules the next tick of each alone."`
}

func forecastQueue(ctx context.Context, c *Call, q *queueForecast) (Forecast, error) {
	return q.of(ctx, c, q.Queue)
}

func forecastAll(ctx context.Context, c *Call, q *forecast) (Forecast, error) {
	return q.of(ctx, c, "")
}

// of is that of a queue, or of the namespace.
func (q *forecast) of(ctx context.Context, c *Call, queue string) (answer Forecast, err error) {
	answer.NowMS, _ = c.Store.Now()
	answer.StepMS = q.Step.Milliseconds()
	err = c.Paced(ctx, func() (err error) {
		answer.Due, err = c.Store.Forecast(ctx, c.Namespace, queue, q.Step, q.Steps)
		return err
	})
	if err == nil {
		answer.Scheduled, answer.ScheduledBy, err = schedule.Forecast(ctx, c.Store, c.Namespace, queue, q.Step, q.Steps)
	}
	answer.Due, answer.Scheduled = upToLast(answer.Due), upToLast(answer.Scheduled)
	return answer, err
}

// upToLast are the counts of steps up to the last that has any.
func upToLast(counts []int64) []int64 {
	n := len(counts)
	for n > 0 && counts[n-1] == 0 {
		n--
	}
	return append([]int64{}, counts[:n]...)
}

const oneJob = "/queues/{queue}/jobs/{job}"

var jobRows = []*Row{
	New("namespace_forecast", "viewer", "GET /forecast", "", "When delayed jobs and ticks of schedules of a namespace come due.", "", forecastAll).ofAdmin(),
	New("forecast", "viewer", "GET /queues/{queue}/forecast", "",
		"How many delayed jobs, and ticks of schedules, come due in each of the next steps.", "", forecastQueue),
	New("promote_job", "operator", "POST "+oneJob+"/promote", "jobs promote",
		"Make delayed jobs ready now, by id.", "${queue}/${job}: ${state}", promote).Confirms("make them ready now", ""),
	New("commit_job", "operator", "POST "+oneJob+"/commit", "jobs commit",
		"Commit prepared jobs in place of their publisher.", "${queue}/${job}: ${result}", decide("committed")).Confirms("commit them", "").free(),
	New("rollback_job", "operator", "POST "+oneJob+"/rollback", "jobs rollback",
		"Delete prepared jobs in place of their publisher.", "${queue}/${job}: ${result}", decide("rolled_back")).Confirms("roll them back", "").free(),
	New("delete_job", "operator", "POST "+oneJob+"/delete", "jobs rm",
		"Delete jobs by id, in whatever state.", "${queue}/${job}: ${state}", deleteJob).Confirms("delete them", "").ofAdmin(),
	New("respawn_jobs", "operator", "POST /queues/{queue}/dead/respawn", "jobs respawn",
		"Make dead letters of a queue ready again, each for one try more.", "${queue}: made ready ${jobs dead letter}", respawnDead).
		Confirms("make them ready", "no such job is dead: spillway jobs get says in which state one is").ofAdmin(),
	New("delete_dead_jobs", "operator", "POST /queues/{queue}/dead/delete", "jobs rm-dead",
		"Delete dead letters of a queue.", "${queue}: deleted ${jobs dead letter}", deleteDead).Confirms("delete them", "").ofAdmin(),
	New("purge_jobs", "operator", "POST /queues/{queue}/purge", "jobs purge",
		"Delete the ready jobs of a queue, or all.", "${queue}: deleted ${jobs job}", purgeJobs).
		Confirms("delete them, with those that arrive meanwhile", "${others} more are delayed, leased or dead: --all deletes those as well").ofAdmin(),
}
