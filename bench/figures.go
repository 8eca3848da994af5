package bench

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Figures are the keys of what spillway bench measures, in the order they are printed.
// Durations are in seconds, rates in entries a second. Counts are of entries of this
// run only, and requests of requests.
var Figures = []string{
	"requests", "acked", "errors", "unknown", "rejected", "rate", "p50", "p99", "p99.9", "max",
	"delivered", "drain_rate", "drained_after", "evicted", "expired", "dead", "lost", "buffered", "residual",
}

var durationFigures = []string{"p50", "p99", "p99.9", "max", "drained_after"}

// An Assertion is one comparison of a list such as p99<5ms,residual=0.
type Assertion struct {
	Key string // one of Figures

	text, op string
	want     float64
}

// ParseAsserts reads a list such as p99<5ms,residual=0. Spaces around an item do not count.
func ParseAsserts(list string) (asserts []Assertion, err error) {
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		a := Assertion{text: text}
		at := strings.IndexAny(text, "<>=!")
		if at < 0 {
			return nil, fmt.Errorf("assert: %q has no comparison: write one such as p99<5ms", text)
		}
		rest := strings.TrimLeft(text[at:], "<>=!")
		a.Key, a.op = strings.TrimSpace(text[:at]), text[at:len(text)-len(rest)]
		if !slices.Contains(Figures, a.Key) {
			return nil, fmt.Errorf("assert: unknown figure %q: want one of %s", a.Key,
				strings.Join(Figures, ", "))
		}
		if !slices.Contains([]string{"<", "<=", ">", ">=", "=", "==", "!="}, a.op) {
			return nil, fmt.Errorf("assert: %q is not a comparison: want one of < <= > >= = !=", a.op)
		}
		rest = strings.TrimSpace(rest)
		if d, failed := time.ParseDuration(rest); failed == nil && slices.Contains(durationFigures, a.Key) {
			a.want = d.Seconds()
		} else if a.want, err = strconv.ParseFloat(rest, 64); err != nil || math.IsNaN(a.want) ||
			slices.Contains(durationFigures, a.Key) && a.want != 0 {
			return nil, fmt.Errorf("assert: %q is not usable for %s: write a number, for a duration with its unit",
				rest, a.Key)
		}
		asserts = append(asserts, a)
	}
	return asserts, nil
}

// Check is an error unless the assertion holds for the figures.
func (a Assertion) Check(figures map[string]float64) error {
	if got := figures[a.Key]; !a.holds(got) {
		return fmt.Errorf("bench: assert %s: got %s", a.text, FigureText(a.Key, got))
	}
	return nil
}

func (a Assertion) holds(got float64) bool {
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

// FigureText is a figure with its unit; durations and rates have two decimals.
func FigureText(key string, value float64) string {
	d := time.Duration(value * float64(time.Second))
	switch {
	case !slices.Contains(durationFigures, key):
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

// Measured are the figures of a run: of the mode ingest, drain or e2e, with a service of its own
// or a running one. The others say nothing: with a backlog
// that bench writes to the store itself there are no requests, and the latencies of
// requests that fill a backlog as fast as they can are not those of a service.
func Measured(mode string, own bool) []string {
	return slices.DeleteFunc(slices.Clone(Figures), func(key string) bool {
		switch key {
		case "requests", "acked", "errors", "unknown", "rejected":
			return mode == "drain" && own
		case "rate", "p50", "p99", "p99.9", "max":
			return mode == "drain"
		case "delivered", "drain_rate", "drained_after":
			return mode == "ingest"
		}
		return false
	})
}

// PrintFigures prints the figures of those keys, with their units, and the rejected entries by code.
func PrintFigures(w io.Writer, keys []string, figures map[string]float64, rejected map[string]int64) error {
	var b strings.Builder
	row := func(name, value string) {
		number, unit, _ := strings.Cut(value, " ")
		fmt.Fprintf(&b, "%-22s %12s %s\n", name, number, unit)
	}
	for _, key := range keys {
		row(key, FigureText(key, figures[key]))
		if key == "rejected" {
			for _, code := range slices.Sorted(maps.Keys(rejected)) {
				row("  "+code, FigureText(key, float64(rejected[code])))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
