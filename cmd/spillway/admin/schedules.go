package admin

import (
	"strings"
	"time"

	"github.com/spillway-io/spillway/partition/schedule"
)

// ScheduleList is a page of the schedules of a namespace, by queue and name, without their
// specifications.
type ScheduleList struct {
	Schedules []schedule.Shown `json:"schedules"`
	Next      string           `json:"next"` // the after of the next page; empty: this is the last
}

// SchedulePut says what a put did.
type SchedulePut struct {
	Result string   `json:"result"` // created, replaced or unchanged
	Rev    int64    `json:"rev"`
	Next   []string `json:"next"`
}

// ScheduleState is the answer to pause and resume.
type ScheduleState struct {
	State string `json:"state"`
	Rev   int64  `json:"rev"`
}

// ScheduleRun is the answer to trigger.
type ScheduleRun struct {
	Jobs int `json:"jobs"` // that were published
}

// BackfillRequest is a range of ticks, without its end.
type BackfillRequest struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Approval
}

// Backfilled is what a backfill published, or would publish.
type Backfilled struct {
	DryRun bool  `json:"dry_run"`
	Ticks  int   `json:"ticks"` // in the range
	Jobs   int64 `json:"jobs"`  // a repeat within a day publishes only what is missing
}

// ScheduleTimes are ticks, in the zone of the schedule.
type ScheduleTimes struct {
	Next []string `json:"next"`
}

// filteredSchedules is how many a page of those that match looks at: the page may be short, or
// empty, and still have a next one.
const filteredSchedules = 1000

func (s *Server) schedules(r *request) (any, error) {
	space, limit := r.jobSpace(), r.number("limit", 100, 1, 1000)
	queue, owner, after := r.queueParam(), r.param("owner"), r.param("after")
	failing := r.flag("failing")
	if r.err != nil {
		return nil, r.err
	}
	look := limit
	if owner != "" || failing {
		look = filteredSchedules
	}
	if queue != "" {
		after = strings.TrimPrefix(after, queue+"/")
	}
	list, more, err := space.store.Schedules(r.ctx, space.ns, queue, after, look)
	if err != nil {
		return nil, err
	}
	answer, last := ScheduleList{Schedules: []schedule.Shown{}}, ""
	for _, found := range list {
		if len(answer.Schedules) == limit {
			more = true
			break
		}
		last = found.Queue + "/" + found.Name
		if owner != "" && schedule.OwnerOf(found.Spec) != owner || failing && !schedule.Failing(found.State) {
			continue
		}
		if shown, err := schedule.Describe(space.ns, found); err == nil {
			shown.Spec = nil
			answer.Schedules = append(answer.Schedules, shown)
		}
	}
	if more {
		answer.Next = last
	}
	return answer, nil
}

// owners lists the services that registered schedules.
func (s *Server) owners(r *request) (any, error) {
	space := r.jobSpace()
	if r.err != nil {
		return nil, r.err
	}
	return schedule.Owners(r.ctx, space.store, space.ns)
}

// scheduleNow shows one, with its specification, whose values are masked as those of payloads.
func (s *Server) scheduleNow(r *request) (any, error) {
	space, queue, name := r.schedule()
	masks := s.masks(r)
	if r.err != nil {
		return nil, r.err
	}
	found, err := space.store.GetSchedule(r.ctx, space.ns, queue, name)
	if err != nil {
		return nil, err
	}
	shown, err := schedule.Describe(space.ns, found)
	shown.Spec = payloadOf(shown.Spec, masks).Data
	return shown, err
}

// scheduleAct records an act on a schedule.
func (s *Server) scheduleAct(r *request, action string, space jobSpace, queue, name string, answer any,
	err error) (any, error) {
	if rejected := jobRejection(err); rejected != nil {
		err = rejected // whose words the trail has
	}
	s.record(r, Act{Action: action, Namespace: space.ns.Name, Queue: queue, Detail: "schedule " + name}, err)
	return answer, err
}

func (s *Server) putSchedule(r *request) (any, error) {
	space, queue, name := r.schedule()
	if r.err != nil {
		return nil, r.err
	}
	spec, err := schedule.Parse(r.body)
	if err != nil {
		return nil, err
	}
	if err := spec.Within(r.view.Limits); err != nil {
		return nil, err
	}
	var answer SchedulePut
	p, err := schedule.Put(r.ctx, space.store, space.ns, queue, name, spec, 0)
	if err == nil {
		answer = SchedulePut{p.Result.String(), p.Revision, []string{}}
		if p.First > 0 {
			answer.Next = spec.Times(time.UnixMilli(p.First-1), schedule.ShownTimes)
		}
	}
	return s.scheduleAct(r, "put_schedule", space, queue, name, answer, err)
}

func (s *Server) deleteSchedule(r *request) (any, error) {
	space, queue, name := r.schedule()
	if r.empty(); r.err != nil {
		return nil, r.err
	}
	err := schedule.Delete(r.ctx, space.store, space.ns, queue, name)
	return s.scheduleAct(r, "delete_schedule", space, queue, name, map[string]string{"result": "deleted"}, err)
}

// setScheduleState pauses a schedule, or resumes it.
func (s *Server) setScheduleState(action, state string) func(*request) (any, error) {
	return func(r *request) (any, error) {
		space, queue, name := r.schedule()
		if r.empty(); r.err != nil {
			return nil, r.err
		}
		_, rev, err := space.store.PauseSchedule(r.ctx, space.ns, queue, name, state == "paused")
		return s.scheduleAct(r, action, space, queue, name, ScheduleState{state, rev}, err)
	}
}

// triggerSchedule publishes a run now, also beside one that is unfinished.
func (s *Server) triggerSchedule(r *request) (any, error) {
	space, queue, name := r.schedule()
	if r.empty(); r.err != nil {
		return nil, r.err
	}
	spec, err := schedule.Stored(r.ctx, space.store, space.ns, queue, name)
	if err != nil {
		return nil, err
	}
	now, err := space.store.Clock(r.ctx, space.ns, queue)
	if err != nil {
		return nil, err
	}
	jobs, err := space.trigger(r.ctx, queue, name, spec.Runs(name, []int64{now}, 't'))
	return s.scheduleAct(r, "trigger_schedule", space, queue, name, ScheduleRun{jobs}, err)
}

// backfillSchedule publishes a run for each tick of a range. A repeat of one that failed goes
// on where that ended.
func (s *Server) backfillSchedule(r *request) (any, error) {
	space, queue, name := r.schedule()
	var body BackfillRequest
	r.decode(&body)
	r.fail(body.check())
	if body.From.Year() < 1970 || body.To.Year() >= 2200 || !body.To.After(body.From) {
		r.bad("from and to: want times of RFC 3339 from 1970 to 2199, the earlier one first")
	}
	if r.err != nil {
		return nil, r.err
	}
	ctx, cancel := s.acting(r, actTimeout)
	defer cancel()
	spec, err := schedule.Stored(ctx, space.store, space.ns, queue, name)
	if err != nil {
		return nil, err
	}
	b := &schedule.Backfill{
		Namespace: space.ns,
		Queue:     queue,
		Name:      name,
		From:      body.From,
		To:        body.To,
		Spec:      spec,
	}
	ticks, err := b.Ticks()
	if err != nil {
		return nil, err
	}
	answer := Backfilled{body.DryRun, len(ticks), int64(len(ticks) * spec.Jobs())}
	if body.DryRun {
		return answer, nil
	}
	if answer.Jobs > *body.Confirm {
		return nil, conflict("there are more jobs than confirmed by now: ask with dry_run again")
	}
	err = b.Publish(ctx, space.store, ticks, func(int) error { return nil })
	answer.Jobs = int64(b.Accepted)
	return s.scheduleAct(r, "backfill_schedule", space, queue, name, answer, err)
}

// scheduleTimes lists the ticks of a schedule from a time on.
func (s *Server) scheduleTimes(r *request) (any, error) {
	space, queue, name := r.schedule()
	count, from := r.number("count", 10, 1, 1000), time.Now()
	if text := r.param("from"); text != "" {
		var err error
		if from, err = time.Parse(time.RFC3339, text); err != nil || from.Year() < 1970 ||
			from.Year() >= 2200 {
			r.bad("from: want a time of RFC 3339 from 1970 to 2199")
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	spec, err := schedule.Stored(r.ctx, space.store, space.ns, queue, name)
	if err != nil {
		return nil, err
	}
	return ScheduleTimes{spec.Times(from, count)}, nil
}
