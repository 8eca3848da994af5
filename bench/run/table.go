package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/lua/proc"
)

// table is everything one run of the comparison found.
type table struct {
	Machine proc.Machine `json:"machine"`
	Rows    []*row       `json:"rows"`
	// Faults are what may not happen at any speed: a residual, an entry lost, a
	// request failed. They make the command fail; a missed goal does not.
	Faults []string `json:"faults"`
}

// row is one line: a ratio of two sides measured in turn, or a figure of ours.
type row struct {
	Key     string    `json:"row"`
	Measure string    `json:"measure"`
	Unit    string    `json:"unit"` // of the values; empty for a ratio
	Goal    float64   `json:"goal"`
	AtMost  bool      `json:"at_most"` // the goal is a ceiling, not a floor
	Values  []float64 `json:"values"`  // one a round
	Ours    []float64 `json:"ours,omitempty"`
	Other   []float64 `json:"other,omitempty"`
	Costs   []costs   `json:"costs,omitempty"`
	Note    string    `json:"note,omitempty"`
}

// costs are what one side of ours used, an entry.
type costs struct {
	Server   float64 `json:"server_cpu_us"`
	Redis    float64 `json:"redis_cpu_us"`
	Loader   float64 `json:"loader_cpu_us"`
	Fill     float64 `json:"batch_fill"`  // of 128; 0 where nothing was drained
	Calls    float64 `json:"redis_calls"` // those that scripts make included
	Scripts  float64 `json:"scripts"`
	Residual int64   `json:"residual"`
}

// add records one round. A ratio is ours ÷ other; a figure has no other.
func (r *row) add(ours, other float64, c *costs) {
	value := ours
	if other != 0 {
		value = ours / other
		r.Other = append(r.Other, other)
	}
	r.Values, r.Ours = append(r.Values, value), append(r.Ours, ours)
	if c != nil {
		r.Costs = append(r.Costs, *c)
	}
}

func (r *row) met() bool {
	if r.AtMost {
		return median(r.Values) <= r.Goal
	}
	return median(r.Values) >= r.Goal
}

// median of the values, the mean of the middle two of an even number.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// compare measures the rows that s asks for. What it has found when ctx ends or
// a side breaks is in the table all the same.
func compare(ctx context.Context, s settings, progress io.Writer) (*table, error) {
	t := &table{Machine: proc.ThisMachine(ctx, s.redisServer, s.bin), Faults: []string{}}
	wanted, err := chosen(s.rows)
	if err != nil {
		return t, err
	}
	for _, g := range wanted {
		rows := g.rows()
		t.Rows = append(t.Rows, rows...)
		for round := range s.rounds {
			_, _ = fmt.Fprintf(progress, "%s  round %d of %d: %s\n", time.Now().Format(time.TimeOnly), round+1, s.rounds, g.name)
			m := &measurement{settings: s, rows: rows, fault: func(format string, args ...any) {
				t.Faults = append(t.Faults, g.name+": "+fmt.Sprintf(format, args...))
			}}
			if err := g.round(ctx, m); err != nil {
				return t, fmt.Errorf("%s: %w", g.name, err)
			}
		}
	}
	return t, nil
}

// group is rows that share their segments. A round measures every side once, so
// that rounds alternate them: A B A B …
type group struct {
	name  string
	rows  func() []*row
	round func(context.Context, *measurement) error
}

// has says whether a row of the group has that key.
func (g group) has(key string) bool {
	return slices.ContainsFunc(g.rows(), func(r *row) bool { return r.Key == key })
}

// chosen are the groups of the rows that a list names, in the table's order:
// keys between commas, where letters may stand together ("bcd,sparse"). An
// empty list means all.
func chosen(list string) ([]group, error) {
	if list == "" {
		return groups, nil
	}
	known := func(key string) bool {
		return slices.ContainsFunc(groups, func(g group) bool { return g.has(key) })
	}
	var keys []string
	for word := range strings.SplitSeq(list, ",") {
		if known(word) {
			keys = append(keys, word)
			continue
		}
		letters := strings.Split(word, "")
		if len(letters) == 0 || !all(letters, known) {
			return nil, fmt.Errorf("rows: %q is not usable: want %s, with commas between them", word, rowKeys())
		}
		keys = append(keys, letters...)
	}
	var some []group
	for _, g := range groups {
		if slices.ContainsFunc(keys, g.has) {
			some = append(some, g)
		}
	}
	return some, nil
}

func all(words []string, holds func(string) bool) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !holds(w) })
}

// measurement is one round of a group.
type measurement struct {
	settings
	rows  []*row
	fault func(format string, args ...any)
}

func (t *table) sheet(colour bool) *sheet {
	s := &sheet{name: "table", machine: t.Machine, head: []string{"", "measure", "median", "min–max", "ours", "other",
		"server", "redis", "loader", "fill", "calls", "scripts", "residual", "goal"}}
	for _, r := range t.Rows {
		if len(r.Values) == 0 {
			continue
		}
		sign, result := "≥", "met"
		if r.AtMost {
			sign = "≤"
		}
		if !r.met() {
			result = red("missed", colour)
		}
		ours, other := "", ""
		if len(r.Other) > 0 {
			ours, other = figure(median(r.Ours)), figure(median(r.Other))
		}
		cells := []string{r.Key, r.Measure, strings.TrimSpace(figure(median(r.Values)) + " " + r.Unit),
			figure(slices.Min(r.Values)) + "–" + figure(slices.Max(r.Values)), ours, other}
		cells = append(cells, r.costs()...)
		s.row(append(cells, strings.TrimSpace(sign+" "+figure(r.Goal)+" "+r.Unit)+", "+result)...)
	}
	s.notes = append(s.notes, "server, redis, loader: CPU µs an entry of our side. fill: entries a batch ÷ 128. calls: Redis commands an "+
		"entry, those in scripts included.")
	for _, r := range t.Rows {
		if r.Note != "" {
			s.notes = append(s.notes, r.Key+": "+r.Note+".")
		}
	}
	for _, f := range t.Faults {
		s.checks = append(s.checks, check{Promise: "the account", Got: f})
	}
	return s
}

// held is false when an account did not add up; a missed goal is no broken promise.
func (t *table) held() bool { return len(t.Faults) == 0 }

// costs are the seven columns, empty where the row has none.
func (r *row) costs() []string {
	if len(r.Costs) == 0 {
		return make([]string, 7)
	}
	of := func(get func(costs) float64) string {
		var values []float64
		for _, c := range r.Costs {
			values = append(values, get(c))
		}
		return figure(median(values))
	}
	var residual int64
	for _, c := range r.Costs {
		residual = max(residual, c.Residual, -c.Residual)
	}
	return []string{
		of(func(c costs) float64 { return c.Server }), of(func(c costs) float64 { return c.Redis }),
		of(func(c costs) float64 { return c.Loader }), of(func(c costs) float64 { return c.Fill }),
		of(func(c costs) float64 { return c.Calls }), of(func(c costs) float64 { return c.Scripts }),
		fmt.Sprint(residual),
	}
}

// figure prints three digits or more: 0.0123, 1.23, 12.3, 123, 123456.
func figure(v float64) string {
	switch {
	case v == 0:
		return "0"
	case math.Abs(v) < 0.1:
		return fmt.Sprintf("%.4f", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
