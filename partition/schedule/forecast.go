package schedule

import (
	"math"
	"time"
)

const (
	forecastSchedules = 10_000   // whose ticks are counted
	forecastBytes     = 16 << 20 // of their specifications
	forecastTicks     = 200_000  // that are searched: some 0.2 s
	searchedTicks     = 2000     // of one schedule; 24 h of minutes are 1,440
	searchedAtLeast   = 20       // of each, also when forecastTicks are used up
)

// How ticks were counted.
const (
	ByTicks    = "ticks"    // each, by its specification
	ByEstimate = "estimate" // as well, but the later ones of some cron expressions by the rate of the earlier ones
	ByNext     = "next"     // the next one of each schedule alone
)

// A forecast counts ticks by the step in which they are.
type forecast struct {
	now, step int64 // ms
	counts    []int64
	left      int // ticks that may be searched
	estimated bool
}

func (f *forecast) by() string {
	if f.estimated {
		return ByEstimate
	}
	return ByTicks
}

// add counts the ticks of a schedule from its next one on. Jitter does not count: it moves no tick.
func (f *forecast) add(s *Spec, next, fired int64) {
	end, runs := f.now+f.step*int64(len(f.counts)), int64(math.MaxInt64)
	if !s.Until.IsZero() {
		end = min(end, s.Until.UnixMilli())
	}
	if s.MaxRuns > 0 {
		runs = s.MaxRuns - fired
	}
	if next > 0 && next <= f.now && runs > 0 { // it fires now, and those after it up to now as missed says
		f.counts[0]++
		runs--
		next = s.Next(f.now)
	}
	if s.Every > 0 {
		f.grid(next, time.Duration(s.Every), end, runs)
		return
	}
	most, first := int64(max(searchedAtLeast, min(searchedTicks, f.left))), next
	for n := int64(0); next > 0 && next <= end && n < runs; n++ {
		if n == most {
			f.grid(next, time.Duration((next-first)/n)*time.Millisecond, end, runs-n)
			f.estimated = true
			return
		}
		f.counts[(next-f.now-1)/f.step]++
		f.left--
		next = s.Next(next)
	}
}

// grid counts up to runs ticks that come every so often, from first to end.
func (f *forecast) grid(first int64, every time.Duration, end, runs int64) {
	if first == 0 || first > end {
		return
	}
	before := int64(0)
	for i := (first - f.now - 1) / f.step; i < int64(len(f.counts)) && before < runs; i++ {
		upTo := min(runs, (min(end, f.now+(i+1)*f.step)-first)*int64(time.Millisecond)/int64(every)+1)
		f.counts[i] += upTo - before
		before = upTo
	}
}
