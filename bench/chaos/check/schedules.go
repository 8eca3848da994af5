package check

import (
	"fmt"
	"time"
)

// Schedules is what is known of the schedules of a run.
type Schedules struct {
	Put    []PutSchedule
	Jobs   []ScheduledJob
	Active map[string]ScheduleAccount // by schedule, while all go on, after the last fault
	Paused map[string]ScheduleAccount // once all are paused and their jobs acked
	Left   int64                      // jobs then
	Fired  int                        // ticks that a run must reach not to be void
}

// PutSchedule is a schedule as it was made: its ticks are those of Every since 1970.
type PutSchedule struct {
	Name   string
	Every  time.Duration
	First  time.Time // its first tick; zero: not known
	Edited bool      // it had another Every since
}

// ScheduledJob is a job as a worker got it.
type ScheduledJob struct {
	Schedule, ID, Cause string
	Tick                time.Time
	Got                 time.Time
}

// ScheduleAccount is what the service says of a schedule.
type ScheduleAccount struct {
	Next                                                                        time.Time // zero: none
	Total, Fired, Missed, Overlapped, Paused, Unregistered, Superseded, Waiting int64
}

// String is the counts, for people.
func (s *Schedules) String() string {
	var sum ScheduleAccount
	for _, a := range s.Paused {
		sum.Total += a.Total
		sum.Fired += a.Fired
		sum.Missed += a.Missed
		sum.Overlapped += a.Overlapped
		sum.Paused += a.Paused
	}
	return fmt.Sprintf("%d schedules: %d ticks, %d fired, %d missed, %d overlapped, %d paused; %d deliveries", len(s.Put), sum.Total, sum.Fired,
		sum.Missed, sum.Overlapped, sum.Paused, len(s.Jobs))
}

// ofTick says that a job is that of a tick, and not of a trigger.
func (j *ScheduledJob) ofTick() bool {
	return j.Cause == "due" || j.Cause == "caught_up" || j.Cause == "waited"
}

// schedules makes the checks of schedules: S1 to S5. A store that forgets fires again what it forgot.
func (r *run) schedules() {
	s := r.Schedules
	if s == nil || r.Policy.Forgets {
		return
	}
	type tick struct {
		schedule string
		at       int64
	}
	ids, seen := map[tick]string{}, map[string]int64{}
	var twice, early, missing, untold tally
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if !j.ofTick() {
			continue
		}
		at := tick{j.Schedule, j.Tick.UnixMilli()}
		switch was, met := ids[at]; {
		case !met:
			ids[at] = j.ID
			seen[j.Schedule]++
		case was != j.ID:
			twice.add("%s at %s is %s and %s", j.Schedule, j.Tick, was, j.ID)
		}
		if read := r.highest(time.Time{}, j.Got); read.Before(j.Tick.Add(-rounding)) {
			early.add("%s at %s, %v before", j.Schedule, j.Tick, j.Tick.Sub(read))
		}
	}
	fired := int64(0)
	for name, a := range s.Paused {
		fired += a.Fired
		if a.Fired != seen[name] && s.Left == 0 {
			missing.add("%s fired %d ticks, and workers met %d", name, a.Fired, seen[name])
		}
		if sum := a.Fired + a.Missed + a.Overlapped + a.Paused + a.Unregistered + a.Superseded + a.Waiting; sum != a.Total {
			untold.add("%s has %d ticks, and says of %d what became of them", name, a.Total, sum)
		}
	}
	for _, p := range s.Put {
		a := s.Active[p.Name]
		if p.Edited || p.First.IsZero() || a.Next.IsZero() {
			continue
		}
		want := int64(a.Next.Sub(p.First) / p.Every)
		if most := want + r.again(p.Every); a.Total < want || a.Total > most {
			untold.add("%s has %d ticks of every %v from %s, and %d are over, %d at most: %+v",
				p.Name, a.Total, p.Every, p.First, want, most, a)
		}
	}
	r.failAll("S1", twice, "ticks fired twice")
	r.failAll("S2", missing, "schedules have other jobs than ticks that fired")
	r.failAll("S3", early, "jobs were there before their tick")
	r.failAll("S4", untold, "schedules do not account for each tick")
	if s.Left != 0 {
		r.fail("S2", "%d jobs of schedules are left long after the last fault", s.Left)
	}
	if fired < int64(s.Fired) {
		r.fail("S5", "void: %d ticks fired, at least %d are needed", fired, s.Fired)
	}
}

// again is how many ticks may count a second time, as what they become: those that were missed or paused while the
// store's clock was ahead, before it stepped back.
func (r *run) again(every time.Duration) (ticks int64) {
	for i, o := range r.clock[1:] {
		if back := r.clock[i].ahead - o.ahead; back > 0 {
			ticks += int64(back/every) + 1
		}
	}
	return ticks
}
