package schedule

import (
	"strconv"
	"strings"
	"time"
)

// State is what the store keeps of a schedule beside its specification, as the scripts write
// it: see read_state in lua/job/include/schedule.lua. Times are Unix ms.
type State struct {
	Revision     int64
	Flag         byte // a active, p paused, e ended
	Tag          string
	Next         int64 // tick; 0: none
	Till         int64 // ticks up to here count as paused
	Waiting      int64 // tick that waits for the end of the run before; 0: none
	First, Count int64 // jobs of the last run
	Ticks        Ticks
	OK, Failed   int64
	Last         []Run // the last runs, the oldest first
	past         past
}

// Ticks is the account of a schedule: each tick so far has become one of these, or waits.
type Ticks struct {
	Fired        int64 `json:"fired"`
	Missed       int64 `json:"missed"`
	Overlapped   int64 `json:"overlapped"`
	Paused       int64 `json:"paused"`
	Unregistered int64 `json:"unregistered"`
	Superseded   int64 `json:"superseded"`
	Waiting      int64 `json:"waiting"` // 0 or 1
}

// Total is how many ticks there were.
func (t Ticks) Total() int64 {
	return t.Fired + t.Missed + t.Overlapped + t.Paused + t.Unregistered + t.Superseded + t.Waiting
}

// A Run is the jobs of one tick.
type Run struct {
	Tick         int64
	Cause        string
	First, Count int64 // sequences of its jobs
}

// lastTick is the newest tick up to most that fired, of the last runs; 0: none.
func (s *State) lastTick(most int64) (last int64) {
	for _, run := range s.Last {
		if run.Cause != causes['t'] && run.Cause != causes['b'] && run.Tick <= most {
			last = max(last, run.Tick)
		}
	}
	return last
}

// Name is the state in words.
func (s *State) Name() string {
	return map[byte]string{'a': "active", 'p': "paused", 'e': "ended"}[s.Flag]
}

// ReadState reads the text of a state. ok is false where another program wrote it.
func ReadState(text string) (s State, ok bool) {
	words, runs, found := strings.Cut(text, "|")
	list := strings.Fields(words)
	if !found || len(list) != 16 || len(list[1]) != 1 {
		return s, false
	}
	s.Flag, s.Tag = list[1][0], list[2]
	fields := []*int64{
		&s.Revision,
		nil,
		nil,
		&s.Next,
		&s.Till,
		&s.Waiting,
		&s.First,
		&s.Count,
		&s.Ticks.Fired,
		&s.Ticks.Missed,
		&s.Ticks.Overlapped,
		&s.Ticks.Paused,
		&s.Ticks.Unregistered,
		&s.Ticks.Superseded,
		&s.OK,
		&s.Failed,
	}
	ok = s.Name() != ""
	for i, to := range fields {
		if to != nil {
			n, err := strconv.ParseInt(list[i], 10, 64)
			*to, ok = n, ok && err == nil && n >= 0
		}
	}
	if s.Waiting > 0 {
		s.Ticks.Waiting = 1
	}
	if over, rest, found := strings.Cut(runs, "!"); found {
		s.past, runs = readPast(over), rest
	}
	for run := range strings.SplitSeq(strings.TrimSuffix(runs, ";"), ";") {
		tick, rest, _ := strings.Cut(run, ",")
		if rest == "" {
			continue
		}
		first, count, _ := strings.Cut(rest[1:], ".")
		r := Run{Cause: causes[rest[0]]}
		r.Tick, _ = strconv.ParseInt(tick, 10, 64)
		r.First, _ = strconv.ParseInt(first, 10, 64)
		r.Count, _ = strconv.ParseInt(count, 10, 64)
		s.Last = append(s.Last, r)
	}
	return s, ok
}

// TickText is a tick as the attribute tick has it.
func TickText(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.999Z") }
