package operate

import (
	"cmp"
	"context"
	"strings"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// Rules has the commands for rules of queues that are made at run time.
type Rules struct {
	Ls  RulesLs  `cmd:"" help:"List the rules of a namespace in the order in which they count, with those of the file."`
	Set RulesSet `cmd:"" help:"Make a rule, or replace that of the same pattern as a whole. Every process follows it within a second."`
	Rm  RulesRm  `cmd:"" help:"Delete a rule that was made at run time."`
}

// RulesLs lists.
type RulesLs struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace, of kind queue."`
}

// Run prints the list.
func (c *RulesLs) Run(ctx context.Context, s Streams) error {
	var answer struct {
		Rules []admin.MadeRule `json:"rules"`
	}
	if done, err := c.read(ctx, s, c.control(c.Namespace).at("/rules"), &answer); done {
		return err
	}
	if len(answer.Rules) == 0 {
		return s.tell("%s has no rules: nothing limits its queues", c.Namespace)
	}
	t := newTable("MATCH", ">RATE", ">BURST", ">LEASES", ">TRIES", ">TTR", ">DELAY", ">TRACE", ">KEPT", "MADE", "BY")
	said := func(n int) string {
		if n == 0 {
			return "-"
		}
		return digits(n)
	}
	for _, r := range answer.Rules {
		t.add(
			string(r.Match),
			cmp.Or(r.Rate.String(), "-"),
			said(r.Burst),
			said(r.Concurrency),
			said(r.Tries),
			cmp.Or(r.TTR.String(), "-"),
			cmp.Or(r.Delay.String(), "-"),
			cmp.Or(r.KeepTrace.String(), "-"),
			cmp.Or(r.KeepAcked.String(), "-"),
			made(r.FromFile, r.CreatedAtMS),
			r.CreatedBy,
		)
		if r.Unused != "" {
			_ = s.tell("%s does not count: %s", r.Match, escape(r.Unused))
		}
	}
	return t.print(s.Out)
}

// RulesSet makes one.
type RulesSet struct {
	command `embed:""`

	Namespace   string `arg:"" help:"The namespace, of kind queue."`
	Match       string `arg:"" help:"A queue, or a pattern in which each * stands for any characters."`
	Rate        string `placeholder:"RATE" help:"Jobs that are claimed, over all processes and workers: 50/s, 1000/min, 20/h, or none."`
	Burst       *int   `placeholder:"N" help:"Jobs at once after a rest. Without it, those of a tenth of a second, 1 at least."`
	Concurrency *int   `placeholder:"N" help:"Jobs that are leased at once, over all processes and workers: 1 to 10000."`
	Tries       *int   `placeholder:"N" help:"How often a job is tried, where its publish does not say."`
	TTR         string `placeholder:"TIME" help:"How long a claim leases a job, where it does not say: such as 10m."`
	Delay       string `placeholder:"TIME" help:"How long a job waits until it is ready, where its publish does not say: such as 5s."`
	KeepTrace   string `placeholder:"TIME" help:"How long what happened to a job is kept, after it happened: such as 24h."`
	KeepAcked   string `placeholder:"TIME" help:"How long acked jobs are kept, with the results of their acks: such as 1h."`
}

// Run makes it.
func (c *RulesSet) Run(ctx context.Context, s Streams) error {
	rule := map[string]any{
		"match":      c.Match,
		"rate":       c.Rate,
		"ttr":        c.TTR,
		"delay":      c.Delay,
		"keep_trace": c.KeepTrace,
		"keep_acked": c.KeepAcked,
	}
	for _, n := range []struct {
		flag string
		of   *int
	}{{"burst", c.Burst}, {"concurrency", c.Concurrency}, {"tries", c.Tries}} {
		switch {
		case n.of == nil:
		case *n.of < 1:
			return misuse("%s: want 1 or more; without the flag the rule does not say", n.flag)
		default:
			rule[strings.ReplaceAll(n.flag, "-", "_")] = *n.of
		}
	}
	var answer admin.PutRule
	raw, err := c.control(c.Namespace).at("/rules").post(ctx, rule, &answer)
	if err != nil {
		return err
	}
	if answer.Replaced != nil {
		_ = s.tell("it replaced %s", escape(string(answer.Replaced)))
	}
	return c.print(s, raw, escape(c.Match)+": set; every process follows it a second from now")
}

// RulesRm deletes one.
type RulesRm struct {
	command `embed:""`

	Namespace string `arg:"" help:"The namespace, of kind queue."`
	Match     string `arg:"" help:"Its pattern, as it was set."`
}

// Run deletes it.
func (c *RulesRm) Run(ctx context.Context, s Streams) error {
	raw, err := c.control(c.Namespace).at("/rules/delete").
		post(ctx, map[string]string{"match": c.Match}, &struct{}{})
	if err != nil {
		return err
	}
	return c.print(s, raw, escape(c.Match)+": deleted")
}
