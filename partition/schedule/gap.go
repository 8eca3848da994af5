package schedule

import (
	"fmt"
	"time"
)

// A Gap is what a state remembers of ticks that were passed over, for a clock that was ahead and
// went back. Then those of the gap are to come again, and what fired while it was ahead must not
// fire a second time. The zero value is none. Times are Unix ms.
type Gap struct {
	// From and To bound the ticks that were passed over, so none of them fired. A schedule that is
	// new has one from 0 to its first tick.
	From, To int64
	// Done is 0 until the clock went back behind To. From then on no tick from To until before
	// Done fires: they did when the clock was ahead, or count as missed.
	Done int64
}

func (g Gap) String() string {
	if g.To == 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d.%d", g.From, g.To, g.Done)
}

func readGap(text string) (g Gap) {
	if n, err := fmt.Sscanf(text, "%d.%d.%d", &g.From, &g.To, &g.Done); n < 3 || err != nil {
		return Gap{}
	}
	return g
}

// next is the tick after a time that is to come.
func (g Gap) next(s *Spec, after int64) int64 {
	tick := s.Next(after)
	if g.Done > 0 && tick >= g.To && tick < g.Done {
		tick = s.Next(g.Done - 1)
	}
	return tick
}

// maxStep is by how much, in ms, a clock may have stepped back for what it passed over, or fired,
// to be remembered.
const maxStep = int64(24 * time.Hour / 1e6)

// after is the gap once a plan has missed the ticks from first until before end, and gone on to
// next. Of several gaps the longest of a day is kept, as it is the likeliest to be a step.
func (g Gap) after(first, end, next, now int64) Gap {
	crossed := g.Done > 0 && now >= g.Done && (next == 0 || next >= g.Done)
	if g.Done > 0 && !crossed {
		return g
	}
	if crossed {
		end, g = min(end, g.To), Gap{}
	}
	switch {
	case first == 0 || end <= first:
	case g.From > 0 && g.To == first:
		g.To = end
	case g.From == 0, end-first >= g.To-g.From, g.To < now-maxStep:
		g = Gap{From: first, To: end}
	}
	return g
}

// reopened is the state where the clock is behind a gap: its next tick is the first of the gap
// that is to come by the clock as it is. Those that count as missed count again, as what they
// become.
func (s *State) reopened(spec *Spec, now int64) State {
	r, g := *s, s.Gap
	if g.Done > 0 || now >= g.To || s.Next == 0 {
		return r
	}
	if next := spec.Next(max(now, g.From-1)); next > 0 && next < min(g.To, s.Next) {
		r.Next, r.Gap.Done = next, s.Next
	}
	return r
}

// paused reports whether a tick counts as paused: not by a pause that ended when the clock was ahead.
func (s *State) paused(tick, now int64) bool {
	return tick <= s.Till && (s.Gap.Done == 0 || s.Till <= now)
}
