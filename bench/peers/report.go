package main

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spillway-io/spillway/lua/proc"
)

// report is everything a run measured, and on what.
type report struct {
	Machine  machine    `json:"machine"`
	Settings settings   `json:"settings"`
	Sides    []measured `json:"sides"`
}

// machine is where the figures are from, and the versions of the libraries.
type machine struct {
	proc.Machine
	Versions map[string]string `json:"versions"`
}

type settings struct {
	Seconds    float64 `json:"seconds"` // of load in each turn
	Rounds     int     `json:"rounds"`
	Partitions int     `json:"partitions"`
	Payload    int     `json:"payload_bytes"`
	Capacity   int     `json:"capacity"`
}

// measured is a side and all its turns.
type measured struct {
	Name    string   `json:"name"`
	Senders int      `json:"senders"`
	Lot     int      `json:"lot"`
	Samples []sample `json:"samples"`
}

func newReport(ctx context.Context, c conditions, chosen []contender, rounds int) *report {
	rep := &report{
		Machine:  machine{proc.ThisMachine(ctx, c.redisServer, c.spillway), map[string]string{}},
		Settings: settings{c.duration.Seconds(), rounds, c.partitions, c.payload, c.capacity},
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range build.Deps {
			switch dep.Path {
			case "github.com/redis/go-redis/v9", "github.com/hibiken/asynq", "github.com/nats-io/nats-server/v2",
				"github.com/nats-io/nats.go", "github.com/valyala/fasthttp":
				rep.Machine.Versions[dep.Path] = dep.Version
			}
		}
	}
	for _, c := range chosen {
		rep.Sides = append(rep.Sides, measured{Name: c.name, Senders: c.senders, Lot: c.lot})
	}
	return rep
}

// print writes one row a side: medians over the rounds, with the lowest and the
// highest of the two rates.
func (r *report) print(out io.Writer) error {
	m, s := r.Machine, r.Settings
	_, _ = fmt.Fprintf(out, "%d CPUs (%s), %s, redis-server %s, %s; %d rounds of %gs, %d partitions, %d B\n",
		m.CPUs, m.CPU, m.Go, m.Redis, m.Date, s.Rounds, s.Seconds, s.Partitions, s.Payload)
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	_, _ = fmt.Fprintln(w, "| side\t| in/s\t| spread\t| end to end/s\t| spread\t| tail s\t| CPU µs/event\t| of it servers\t| fill\t| "+
		"lost\t| others' CPU\t| also\t|")
	_, _ = fmt.Fprintln(w, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, side := range r.Sides {
		in, e2e := side.spread(func(s sample) float64 { return s.In }), side.spread(func(s sample) float64 { return s.EndToEnd })
		mid := func(of func(sample) float64) float64 { return side.spread(of).median }
		_, _ = fmt.Fprintf(w, "| %s\t| %.0f\t| %.0f–%.0f\t| %.0f\t| %.0f–%.0f\t| %.1f\t| %.1f\t| %.1f\t| %.2f\t| %d\t| %.0f %%\t| %s\t|\n",
			side.Name, in.median, in.low, in.high, e2e.median, e2e.low, e2e.high,
			mid(func(s sample) float64 { return s.Tail }), mid(sample.CPU), mid(func(s sample) float64 { return s.Servers }),
			mid(func(s sample) float64 { return s.Fill }), side.sum(func(s sample) int64 { return s.Lost }),
			100*mid(func(s sample) float64 { return s.Others }), side.remarks())
	}
	return w.Flush()
}

type spread struct{ low, median, high float64 }

func (m measured) spread(of func(sample) float64) spread {
	var all []float64
	for _, s := range m.Samples {
		all = append(all, of(s))
	}
	slices.Sort(all)
	middle := (all[len(all)/2] + all[(len(all)-1)/2]) / 2
	return spread{all[0], middle, all[len(all)-1]}
}

func (m measured) sum(of func(sample) int64) int64 {
	var n int64
	for _, s := range m.Samples {
		n += of(s)
	}
	return n
}

// remarks tells what a perfect run has none of.
func (m measured) remarks() string {
	var all []string
	for _, r := range []struct {
		what string
		n    int64
	}{
		{"left", m.sum(func(s sample) int64 { return s.Left })},
		{"repeated", m.sum(func(s sample) int64 { return s.Repeated })},
		{"failed", m.sum(func(s sample) int64 { return s.Failed })},
	} {
		if r.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", r.n, r.what))
		}
	}
	return strings.Join(all, ", ")
}
