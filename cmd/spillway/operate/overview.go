package operate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/human"
)

// tablesOf has a table of the namespaces of each kind that there are.
func tablesOf(o *admin.Overview) (lines []string) {
	if len(o.Namespaces) > 0 || len(o.Queues) == 0 {
		lines = namespaceTable(o).lines()
	}
	if len(o.Queues) > 0 {
		if lines != nil {
			lines = append(lines, "")
		}
		lines = append(lines, jobsTable(o).lines()...)
	}
	return lines
}

// troubled orders namespaces by what was found of them, the worst first.
func troubled(o *admin.Overview) func(a, b string) int {
	ranks := map[string]int{}
	for _, f := range o.Findings.Findings {
		ranks[f.Namespace] = max(ranks[f.Namespace], f.Level.Rank())
	}
	return func(a, b string) int { return cmp.Compare(ranks[b], ranks[a]) }
}

// rateOf is the sum of some rates, "?" where one is not known.
func rateOf(rates map[string]float32, names ...string) string {
	sum := float32(0)
	for _, name := range names {
		r, known := rates[name]
		if !known {
			return "?"
		}
		sum += r
	}
	return rate(sum)
}

func namespaceTable(o *admin.Overview) *table {
	t := newTable("NAMESPACE", ">ACCEPTED/s", ">DELIVERED/s", ">DROPPED/s", ">DROPPED",
		">REJECTED/s", ">BACKLOG", ">OLDEST", ">LIMIT",
		">PARTITIONS", ">DEAD LETTERS", "SINK")
	worse := troubled(o)
	slices.SortStableFunc(o.Namespaces, func(a, b admin.NamespaceOverview) int { return worse(a.Namespace, b.Namespace) })
	for _, n := range o.Namespaces {
		l, state := n.Ledger, worstState(n.Sinks)
		if n.Paused != nil {
			state = "paused"
		}
		t.add(n.Namespace, rateOf(n.Rates, "accepted"), rateOf(n.Rates, "delivered"),
			rateOf(n.Rates, "evicted", "expired", "dead", "lost"), digits(l.Evicted+l.Expired+l.Dead+l.Lost),
			rateOf(n.Rates, "rejected"), digits(n.Buffered), sinceOr(n.OldestAgeMS, "-"), human.Since(n.MaxAgeMS),
			digits(n.Partitions), digits(n.DeadLetters), state)
	}
	return t
}

func jobsTable(o *admin.Overview) *table {
	t := newTable("NAMESPACE", ">PUBLISHED/s", ">ACKED/s", ">FAILED/s", ">LOST", ">READY", ">DELAYED",
		">LEASED", ">DEAD", ">OLDEST READY", ">QUEUES", "SINK")
	worse := troubled(o)
	slices.SortStableFunc(o.Queues, func(a, b admin.QueueOverview) int { return worse(a.Namespace, b.Namespace) })
	for _, q := range o.Queues {
		l := q.Ledger
		cells := []string{q.Namespace, rateOf(q.Rates, "published"), rateOf(q.Rates, "acked"),
			rateOf(q.Rates, "expired", "lost", "died")}
		for _, n := range []int64{l.Lost, l.Ready, l.Prepared + l.Delayed, l.Leased, l.Dead} {
			cells = append(cells, digits(n))
		}
		t.add(append(cells, sinceOr(q.OldestReadyAgeMS, "-"), digitsOr(q.Queues, "-"), worstState(q.Sinks))...)
	}
	return t
}

// worstState is the state of a sink that fails, or else of any; "-" without sinks.
func worstState(sinks []admin.Sink) string {
	if len(sinks) == 0 {
		return "-"
	}
	for _, s := range sinks {
		if s.Fails() {
			return s.State
		}
	}
	return sinks[0].State
}

type partitionRow struct {
	admin.PartitionRow
	Namespace string `json:"namespace"` // ours: the answer is of one namespace
	raw       json.RawMessage
	empty     bool // a pause that waits for the first entry
}

type partitionList struct {
	admin.PartitionList
	Partitions []json.RawMessage `json:"partitions"`
}

// body is the payload on one line.
func body(p *admin.Shown) string {
	text := ""
	switch {
	case p.Data != nil:
		text = compact(p.Data)
	case p.Text != "":
		text = p.Text
	case p.Base64 != "":
		text = "base64:" + p.Base64
	}
	if p.Cut {
		text += " … (cut)"
	}
	return text
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}
