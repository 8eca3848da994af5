package schedule

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
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
		shown.Next = spec.times(state.past, time.UnixMilli(state.Next-1), ShownTimes)
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
func Forecast(ctx context.Context, store clock, ns *job.Namespace, queue string,
	step time.Duration,
	n int) (counts []int64, by string, err error) {
	f := forecast{now: nowOf(store), step: step.Milliseconds(), counts: make([]int64, n), left: forecastTicks}
	of, ok := store.(job.ScheduleForecasts)
	if !ok { // its kind has no schedules
		return f.counts, f.by(), nil
	}
	size := 0
	all, err := of.ScanSchedules(ctx, ns, queue, forecastSchedules, func(page []job.Schedule) bool {
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
	counts, err = of.NextTicks(ctx, ns, queue, step, n)
	return counts, ByNext, err
}

const (
	planTicks = 10_000                          // ticks that a plan goes through
	planRuns  = 32                              // runs of a plan
	planJobs  = 1000                            // jobs of a plan
	lookAhead = int64(7 * 24 * time.Hour / 1e6) // ms: a schedule deserves a look after a week at the latest
)

// Plan says which ticks of a schedule are due at now, Unix ms, and which of them run. It is the
// same in every process, and the only place that knows times.
//
// A tick up to Till counts as paused. One that is no later than grace runs. Of later ones,
// missed: skip runs none; all runs each, the oldest first; one runs the newest, or none where
// one within grace runs with it. What is older than window never runs. What does not run counts
// as missed.
func Plan(s *Spec, namespace, queue, name, text string, st *State, now int64) *job.Firing {
	f := &job.Firing{
		Queue:   queue,
		Name:    name,
		State:   text,
		Overlap: cmp.Or(s.Overlap, "allow"),
		Owner:   s.Owner,
		By:      s.By,
		Counts:  s.Counts(),
		Left:    -1,
		Runs:    s.Runs(name, nil, 0),
	}
	if s.MaxRuns > 0 {
		f.Left = max(0, s.MaxRuns-st.Ticks.Fired)
	}
	seed := seedOf(namespace, queue, name)
	f.Held = st.Waiting > 0 && s.fires(st.Waiting, seed) > now // the clock went back behind it
	if st.Waiting > 0 && !f.Held {
		f.List = append(f.List, s.run(name, st.Waiting, 'w'))
	}
	first, over := st.comes(s, now)
	p := planner{spec: s, firing: f, name: name, seed: seed}
	limit, waits := s.RunsAtOnce()+len(f.List), len(f.List)
	tick := first
	for n := 0; tick > 0 && s.fires(tick, p.seed) <= now && n < planTicks && len(f.List) < limit; n++ {
		if tick <= st.Till {
			f.Paused++
		} else {
			p.take(tick, now-s.fires(tick, p.seed))
		}
		tick = over.next(s, tick)
	}
	more := tick > 0 && s.fires(tick, p.seed) <= now
	if p.newest > 0 && more {
		f.Missed++ // there is a newer one
	} else if p.newest > 0 {
		f.List = append(f.List, s.run(name, p.newest, 'c'))
	}
	f.Next, f.Look = tick, min(s.fires(tick, p.seed), now+lookAhead)
	begin := cmp.Or(tick, now+1)
	if len(f.List) > waits {
		begin = f.List[waits].Tick
	}
	if first > 0 && begin > first { // some were passed over
		over = over.turn(first, begin)
	}
	f.Past = over.String()
	return f
}

type planner struct {
	spec   *Spec
	firing *job.Firing
	name   string
	seed   uint64
	newest int64 // missed: one; 0: none yet
}

// take decides what becomes of a tick that is so late, in ms.
func (p *planner) take(tick, late int64) {
	skip := func() {
		if p.newest > 0 {
			p.firing.Missed++
			p.newest = 0
		}
	}
	window := time.Duration(p.spec.Window).Milliseconds()
	switch {
	case late <= p.spec.grace().Milliseconds():
		skip()
		p.firing.List = append(p.firing.List, p.spec.run(p.name, tick, 'd'))
	case p.spec.Missed == "skip", window > 0 && late > window:
		skip()
		p.firing.Missed++
	case p.spec.Missed == "all":
		p.firing.List = append(p.firing.List, p.spec.run(p.name, tick, 'c'))
	default:
		skip()
		p.newest = tick
	}
}

// first is the first tick of a new specification, and when it deserves a look; 0 where there is none. over is what does not
// come again.
func first(s *Spec, namespace, queue, name string, st *State, now int64) (tick, look int64, over past) {
	before := st.past
	if st.Revision == 0 {
		before.since = now + 1
	}
	end := st.lastTick(cmp.Or(st.Next, math.MaxInt64)-1) + 1
	over = before.turn(end, now+1)
	tick = over.next(s, now)
	if before.since < end && s.Next(end-1) == tick {
		over = before // nothing lies between
	}
	return tick, min(s.fires(tick, seedOf(namespace, queue, name)), now+lookAhead), over
}
