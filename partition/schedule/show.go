package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
)

// Shown is a schedule as both ports show it.
type Shown struct {
	Name  string          `json:"name"`
	Queue string          `json:"queue"`
	State string          `json:"state"` // active, paused or ended
	Owner string          `json:"owner,omitempty"`
	Rev   int64           `json:"rev"`
	Next  []string        `json:"next"`
	Ticks ShownTicks      `json:"ticks"`
	Jobs  *ShownJobs      `json:"jobs,omitempty"` // with track
	Last  []ShownRun      `json:"last"`           // the newest first
	Spec  json.RawMessage `json:"spec,omitempty"`
}

// ShownTicks is the account of a schedule, and its sum.
type ShownTicks struct {
	Total int64 `json:"total"`
	Ticks
}

// ShownJobs is how the jobs of the runs ended.
type ShownJobs struct {
	OK     int64 `json:"ok"`     // acked
	Failed int64 `json:"failed"` // dead, expired, deleted or lost
}

// ShownRun is one of the last runs.
type ShownRun struct {
	Tick  string   `json:"tick"`
	Cause string   `json:"cause"`
	AtMS  int64    `json:"at_ms"` // when its jobs were published
	IDs   []string `json:"ids"`
}

const (
	// ShownTimes is how many ticks to come are shown.
	ShownTimes = 5
	shownIDs   = 10 // of a run
)

// ErrUnreadable is ErrBroken: the schedule was written by another program, or its zone is not
// in the tzdata of this one.
var ErrUnreadable = fmt.Errorf("%w: the schedule was written by another program, or its zone is not in the tzdata of this one",
	backend.ErrBroken)

// Describe is a schedule as it is shown, or ErrUnreadable.
func Describe(ns *job.Namespace, s job.Schedule) (Shown, error) {
	state, ok := ReadState(s.State)
	spec, err := read(s.Spec)
	if !ok || err != nil {
		return Shown{}, ErrUnreadable
	}
	shown := Shown{
		Name:  s.Name,
		Queue: s.Queue,
		State: state.Name(),
		Owner: spec.Owner,
		Rev:   state.Revision,
		Next:  []string{},
		Ticks: ShownTicks{state.Ticks.Total(), state.Ticks},
		Last:  []ShownRun{},
		Spec:  s.Spec,
	}
	if spec.Track || state.OK+state.Failed > 0 {
		shown.Jobs = &ShownJobs{state.OK, state.Failed}
	}
	if state.Flag == 'a' && state.Next > 0 {
		shown.Next = spec.Times(time.UnixMilli(state.Next-1), ShownTimes)
	}
	shard := ns.ScheduleShard(s.Queue)
	for i := len(state.Last) - 1; i >= 0; i-- {
		r := state.Last[i]
		run := ShownRun{Tick: TickText(r.Tick), Cause: r.Cause, AtMS: r.First / 1000, IDs: []string{}}
		for seq := r.First; seq < r.First+min(r.Count, shownIDs); seq++ {
			run.IDs = append(run.IDs, ns.ID(shard, s.Queue, seq, ""))
		}
		shown.Last = append(shown.Last, run)
	}
	return shown, nil
}

// Failing reports whether the account of a schedule has ticks that should have fired and did
// not, or its jobs some that did not end well. One that cannot be read fails.
func Failing(state string) bool {
	s, ok := ReadState(state)
	return !ok || s.Ticks.Missed+s.Ticks.Unregistered+s.Failed > 0
}

// A clock is that of a store.
type clock interface {
	Now() (ms int64, ok bool)
}

// nowOf is the time of a store, Unix ms; of this process where the store's is not known yet.
func nowOf(store clock) int64 {
	if now, known := store.Now(); known {
		return now
	}
	return time.Now().UnixMilli()
}

// Forecast counts the ticks of a queue, or of the namespace where queue is empty, in each of
// the next n steps; the first has those that are due now, too. by says how. It reads the
// specifications of 10,000 schedules and 16 MiB at most: of more it counts the next tick of
// each.
func Forecast(ctx context.Context, store job.ScheduleForecasts, ns *job.Namespace, queue string,
	step time.Duration,
	n int) (counts []int64, by string, err error) {
	f := forecast{now: nowOf(store), step: step.Milliseconds(), counts: make([]int64, n), left: forecastTicks}
	size := 0
	all, err := store.ScanSchedules(ctx, ns, queue, forecastSchedules, func(page []job.Schedule) bool {
		for _, s := range page {
			size += len(s.Spec)
			if state, ok := ReadState(s.State); ok && state.Flag == 'a' {
				if spec, err := read(s.Spec); err == nil {
					f.add(spec, state.Next, state.Ticks.Fired)
				}
			}
		}
		return size <= forecastBytes
	})
	if err != nil || all {
		return f.counts, f.by(), err
	}
	counts, err = store.NextTicks(ctx, ns, queue, step, n)
	return counts, ByNext, err
}
