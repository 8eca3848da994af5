package schedule

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// A past is which ticks of a schedule are over, so that they never come again, also where the clock was ahead and went back.
// Those that were passed over, as they were missed or paused, are not among them. The zero value is that of a state which
// says nothing: all before its next tick are over. Times are Unix ms.
type past struct {
	edges []int64 // of the spans that are over: the first from, the first to, the second from, …
	since int64   // from here on, up to the state's next tick, they are over, too
}

// maxSpans is how many spans a state keeps: 28 bytes each.
const maxSpans = 4

func (p past) String() string {
	if p.since == 0 {
		return ""
	}
	var text strings.Builder
	for _, edge := range p.edges {
		text.WriteString(strconv.FormatInt(edge, 10) + ".")
	}
	return text.String() + strconv.FormatInt(p.since, 10)
}

func readPast(text string) (p past) {
	for word := range strings.SplitSeq(text, ".") {
		edge, _ := strconv.ParseInt(word, 10, 64)
		p.edges = append(p.edges, edge)
	}
	last := len(p.edges) - 1
	if last%2 == 1 || !slices.IsSorted(p.edges[:last]) {
		return past{}
	}
	return past{p.edges[:last], p.edges[last]}
}

// next is the first tick after a time that is not over.
func (p past) next(s *Spec, after int64) int64 {
	tick := s.Next(after)
	for i := 1; i < len(p.edges) && tick > 0; i += 2 {
		if tick >= p.edges[i-1] && tick < p.edges[i] {
			tick = s.Next(p.edges[i] - 1)
		}
	}
	return tick
}

// maxStep is by how much, in ms, a clock may have been ahead for what it passed over to be remembered before all else.
const maxStep = int64(24 * time.Hour / 1e6)

// turn ends the span of now before end, and begins the next one, on either side. Of more spans than a state keeps, two become
// one: those with the fewest ms between them, or of old ones any, but not those between which the next one begins.
func (p past) turn(end, since int64) past {
	edges := p.edges
	if begin := max(p.since, 1); begin < end {
		i, _ := slices.BinarySearch(edges, begin)
		j, _ := slices.BinarySearch(edges, end+1)
		var outside []int64
		if i%2 == 0 {
			outside = append(outside, begin)
		}
		if j%2 == 0 {
			outside = append(outside, end)
		}
		edges = slices.Concat(edges[:i], outside, edges[j:])
	}
	for len(edges) > 2*maxSpans {
		least, fewest := 0, int64(0)
		for i := 1; i+1 < len(edges); i += 2 {
			between := edges[i+1] - edges[i]
			if edges[i+1] < since-maxStep {
				between = 0
			} else if edges[i] <= since && since < edges[i+1] {
				continue
			}
			if least == 0 || between < fewest {
				least, fewest = i, between
			}
		}
		edges = slices.Delete(slices.Clone(edges), least, least+2)
	}
	return past{edges, since}
}

// comes is the next tick of a state by the clock as it is, and what is over then: a clock that went back may be before
// ticks that were passed over. They count again, as what they become.
func (s *State) comes(spec *Spec, now int64) (int64, past) {
	back := s.past.turn(s.Next, now+1)
	if tick := back.next(spec, now); tick > 0 && tick < s.Next {
		return tick, back
	}
	return s.Next, s.past
}
