package load

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// benchFigures are the keys of the result, in the order they are printed.
// Durations are in seconds, rates in entries a second. Counts are of entries of this
// run only, and requests of requests.
var benchFigures = []string{
	"requests", "acked", "errors", "unknown", "rejected", "rate", "p50", "p99", "p99.9", "max",
	"delivered", "drain_rate", "drained_after", "evicted", "expired", "dead", "lost", "buffered", "residual",
}

var benchDurations = []string{"p50", "p99", "p99.9", "max", "drained_after"}

// An assertion is one comparison of --assert.
type assertion struct {
	text, key, op string
	want          float64
}

// parseAsserts reads a list such as p99<5ms,residual=0.
func parseAsserts(list string) (asserts []assertion, err error) {
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		a := assertion{text: text}
		at := strings.IndexAny(text, "<>=!")
		if at < 0 {
			return nil, fmt.Errorf("assert: %q has no comparison: write one such as p99<5ms", text)
		}
		rest := strings.TrimLeft(text[at:], "<>=!")
		a.key, a.op = strings.TrimSpace(text[:at]), text[at:len(text)-len(rest)]
		if !slices.Contains(benchFigures, a.key) {
			return nil, fmt.Errorf("assert: unknown figure %q: want one of %s", a.key,
				strings.Join(benchFigures, ", "))
		}
		if !slices.Contains([]string{"<", "<=", ">", ">=", "=", "==", "!="}, a.op) {
			return nil, fmt.Errorf("assert: %q is not a comparison: want one of < <= > >= = !=", a.op)
		}
		rest = strings.TrimSpace(rest)
		if d, failed := time.ParseDuration(rest); failed == nil && slices.Contains(benchDurations, a.key) {
			a.want = d.Seconds()
		} else if a.want, err = strconv.ParseFloat(rest, 64); err != nil || math.IsNaN(a.want) ||
			slices.Contains(benchDurations, a.key) && a.want != 0 {
			return nil, fmt.Errorf("assert: %q is not usable for %s: write a number, for a duration with its unit",
				rest, a.key)
		}
		asserts = append(asserts, a)
	}
	return asserts, nil
}

func (a assertion) holds(got float64) bool {
	switch a.op {
	case "<":
		return got < a.want
	case "<=":
		return got <= a.want
	case ">":
		return got > a.want
	case ">=":
		return got >= a.want
	case "!=":
		return got != a.want
	}
	return got == a.want
}

// measured are the figures of this run. The others say nothing: with a backlog
// that bench writes to the store itself there are no requests, and the latencies of
// requests that fill a backlog as fast as they can are not those of a service.
func (c *Bench) measured() []string {
	return slices.DeleteFunc(slices.Clone(benchFigures), func(key string) bool {
		switch key {
		case "requests", "acked", "errors", "unknown", "rejected":
			return c.Mode == "drain" && c.Server == ""
		case "rate", "p50", "p99", "p99.9", "max":
			return c.Mode == "drain"
		case "delivered", "drain_rate", "drained_after":
			return c.Mode == "ingest"
		}
		return false
	})
}

// print prints what was measured, and the rejected entries by code.
func (c *Bench) print(w io.Writer, figures map[string]float64, rejected map[string]int64) error {
	if c.Output == "json" {
		all := map[string]any{"mode": c.Mode}
		for _, key := range c.measured() {
			all[key] = figures[key]
		}
		if _, ok := all["rejected"]; ok {
			all["rejected_by_code"] = rejected
		}
		return json.NewEncoder(w).Encode(all)
	}
	var b strings.Builder
	row := func(name, value string) {
		number, unit, _ := strings.Cut(value, " ")
		fmt.Fprintf(&b, "%-22s %12s %s\n", name, number, unit)
	}
	for _, key := range c.measured() {
		row(key, figureText(key, figures[key]))
		if key == "rejected" {
			for _, code := range slices.Sorted(maps.Keys(rejected)) {
				row("  "+code, figureText(key, float64(rejected[code])))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// figureText is a figure with its unit; durations and rates have two decimals.
func figureText(key string, value float64) string {
	d := time.Duration(value * float64(time.Second))
	switch {
	case !slices.Contains(benchDurations, key):
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", value)
	case d >= time.Millisecond:
		return fmt.Sprintf("%.2f ms", value*1e3)
	default:
		return fmt.Sprintf("%.2f µs", value*1e6)
	}
	switch key {
	case "rate", "drain_rate":
		return fmt.Sprintf("%.2f entries/s", value)
	case "requests":
		return fmt.Sprintf("%.0f requests", value)
	}
	return fmt.Sprintf("%.0f entries", value)
}
