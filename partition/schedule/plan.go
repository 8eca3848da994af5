package schedule

import (
	"cmp"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

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
		Left:    -1,
		Runs:    s.Runs(name, nil, 0),
	}
	if s.MaxRuns > 0 {
		f.Left = max(0, s.MaxRuns-st.Ticks.Fired)
	}
	if st.Waiting > 0 {
		f.List = append(f.List, s.run(name, st.Waiting, 'w'))
	}
	p := planner{spec: s, firing: f, name: name, seed: seedOf(namespace, queue, name)}
	limit := s.RunsAtOnce() + len(f.List)
	tick := st.Next
	for n := 0; tick > 0 && s.fires(tick, p.seed) <= now && n < planTicks && len(f.List) < limit; n++ {
		if tick <= st.Till {
			f.Paused++
		} else {
			p.take(tick, now-s.fires(tick, p.seed))
		}
		tick = s.Next(tick)
	}
	more := tick > 0 && s.fires(tick, p.seed) <= now
	if p.newest > 0 && more {
		f.Missed++ // there is a newer one
	} else if p.newest > 0 {
		f.List = append(f.List, s.run(name, p.newest, 'c'))
	}
	f.Next, f.Look = tick, min(s.fires(tick, p.seed), now+lookAhead)
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

// First is the first tick of a specification after now, and when it deserves a look; 0 where
// there is none.
func First(s *Spec, namespace, queue, name string, now int64) (tick, look int64) {
	tick = s.Next(now)
	return tick, min(s.fires(tick, seedOf(namespace, queue, name)), now+lookAhead)
}
