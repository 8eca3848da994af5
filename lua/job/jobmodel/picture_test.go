package jobmodel

import (
	"fmt"
	"slices"
	"strconv"
)

// Totals are the fields of a ledger that Picture shows.
var Totals = []string{"seq", "published", "acked", "expired", "deleted", "lost", "dead", "died", "respawned"}

// Picture is all that a shard holds, a line for each fact, sorted. A shard in Redis
// that is equal has the same lines.
func (s *Shard) Picture() []string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, total := range Totals {
		add("ledger %s %d", total, s.Ledger[total])
	}
	for ref, at := range s.Delay {
		add("delay %d %s %s", ref.Seq, ref.Queue, Score(at))
	}
	for ref, at := range s.Lease {
		add("lease %d %s %s", ref.Seq, ref.Queue, Score(at))
	}
	for ref, n := range s.Attempts {
		add("attempts %d %s %d", ref.Seq, ref.Queue, n)
	}
	for name, at := range s.Queues {
		add("queues %s %d", name, at)
	}
	for name, n := range s.Tombstones {
		if n != 0 {
			add("tombstones %s %d", name, n)
		}
	}
	for key, x := range s.Stored {
		add("stored %s %d %d", key, x.First, x.Count)
	}
	for lane, h := range s.Handed {
		add("handed %s %s", lane, h.Token)
	}
	for name, q := range s.Queue {
		for seq, j := range q.Jobs {
			add("job %s %d %s", name, seq, j.Record())
		}
		if len(q.Ready) > 0 {
			add("ready %s %v", name, q.Ready)
		}
		for seq, at := range q.Dead {
			add("dead %s %d %s", name, seq, Score(at))
		}
		for id, seq := range q.IDs {
			add("id %s %s %d", name, id, seq)
		}
	}
	slices.Sort(lines)
	return lines
}

// Score is a score of delay, lease or the dead as Redis writes it.
func Score(ms float64) string { return strconv.FormatFloat(ms, 'f', -1, 64) }
