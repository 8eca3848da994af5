package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/bench/chaos/check"
)

// figures are what is counted of a run, or of several.
type figures struct {
	acked, unknown, rejected int
	posts, taken, repeated   int
	samples                  int
}

func figuresOf(h *check.History) (f figures) {
	for _, s := range h.Sent {
		switch s.Outcome {
		case check.Acked:
			f.acked++
		case check.Unknown:
			f.unknown++
		case check.Rejected:
			f.rejected++
		}
	}
	met := map[uint64]bool{}
	taken := map[uint64]bool{}
	for _, p := range h.Posts {
		f.posts++
		for _, l := range p.Lines {
			if met[l.Data.UID] {
				f.repeated++
			}
			met[l.Data.UID] = true
			if p.Kept {
				taken[l.Data.UID] = true
			}
		}
	}
	f.taken, f.samples = len(taken), len(h.Samples)
	return f
}

// print says what happened, what held, and how to play it again.
func (res *result) print(out io.Writer) {
	h, f := res.history, figuresOf(res.history)
	l := h.Final.Ledger
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(out, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("chaos", "%v", res.plan)
	line("clients", "%d entries acknowledged, %d unknown, %d rejected: %s", f.acked, f.unknown, f.rejected, counted(res.rejected))
	line("sink", "%d posts: %s; %d different entries kept, %d presented again", f.posts, counted(statuses(h.Posts)), f.taken, f.repeated)
	line("faults", "%d, %d planned: %s", len(h.Faults), len(res.plan.faults), counted(faultCounts(h.Faults)))
	line("ledger", "accepted %d = delivered %d + evicted %d + expired %d + dead %d + lost %d + buffered %d; reclaimed %d, residual %d",
		l.Accepted, l.Delivered, l.Evicted, l.Expired, l.Dead, l.Lost, l.Buffered, h.Final.Reclaimed, h.Final.Residual)
	if h.Jobs != nil {
		line("queues", "%s", h.Jobs)
		line("schedules", "%s", h.Schedules)
	}
	line("samples", "%d of the store, each atomic", f.samples)
	if len(h.Pauses) > 0 {
		line("pauses", "%d partitions were paused for a while", len(h.Pauses))
	}
	if h.Policy.Forgets && h.Policy.Replicated {
		line("forgot", "a failover lost writes that nobody was told of")
	}
	if h.Policy.Forgets && !h.Policy.Replicated {
		line("forgot", "%d acknowledged entries at least; the servers counted %d", max(0, int64(f.acked)-l.Accepted), rolledBack(h))
	}
	if len(res.violations) == 0 {
		line("checks", "C1 to C15, J1 to J10 and S1 to S5 held")
	}
	for _, v := range res.violations {
		line("VIOLATED", "%v", v)
	}
	if res.dir != "" {
		line("logs", "%s", res.dir)
	}
	replay := fmt.Sprintf("make chaos SEED=%d DURATION=%v", res.plan.seed, res.plan.duration)
	if res.plan.flags != "" {
		replay += fmt.Sprintf(" CHAOSFLAGS='%s'", res.plan.flags)
	}
	line("replay", "%s", replay)
	_, _ = fmt.Fprintln(out)
}

// rolledBack is the most that one process saw vanish from the store.
func rolledBack(h *check.History) (most int64) {
	for _, p := range h.Processes {
		most = max(most, int64(p.Last[`spillway_store_rolled_back_entries_total{pool="default"}`]))
	}
	return most
}

func statuses(posts []check.Post) map[string]int {
	n := map[string]int{}
	for _, p := range posts {
		name := fmt.Sprint(p.Status)
		if p.Status == 0 {
			name = "hung up"
		}
		n[name]++
	}
	return n
}

func faultCounts(faults []check.Fault) map[string]int {
	n := map[string]int{}
	for _, f := range faults {
		target, _, _ := strings.Cut(f.Target, "-")
		n[f.Kind+" "+target]++
	}
	return n
}

// counted lists counts by name.
func counted(n map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, n[name]))
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// total sums up several runs.
type total struct {
	figures
	runs, red, faults int
}

func (t *total) add(res *result) {
	f := figuresOf(res.history)
	t.acked, t.unknown, t.rejected = t.acked+f.acked, t.unknown+f.unknown, t.rejected+f.rejected
	t.posts, t.taken, t.repeated, t.samples = t.posts+f.posts, t.taken+f.taken, t.repeated+f.repeated, t.samples+f.samples
	t.faults += len(res.history.Faults)
	t.runs++
	if len(res.violations) > 0 {
		t.red++
	}
}

func (t *total) print(out io.Writer) {
	_, _ = fmt.Fprintf(out, "%d runs, %d of them red: %d faults, %d entries acknowledged, %d unknown, %d rejected, %d kept by the sink, %d "+
		"presented again, %d samples\n",
		t.runs, t.red, t.faults, t.acked, t.unknown, t.rejected, t.taken, t.repeated, t.samples)
}
