package admin

import (
	"fmt"

	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

// Rule is what holds for queues of a namespace, over all processes and workers.
type Rule struct {
	Match     job.Pattern   `json:"match"`      // a queue, or a pattern in which each * stands for any characters
	Rate      job.RateLimit `json:"rate"`       // jobs that are claimed, such as 50/s, or none; empty: it does not say
	Burst     int           `json:"burst"`      // jobs at once after a rest; 0: those of a tenth of a second
	Tries     int           `json:"tries"`      // default of a publish; 0: it does not say
	TTR       job.Span      `json:"ttr"`        // default lease of a claim; empty: it does not say
	Delay     job.Span      `json:"delay"`      // default delay of a publish; empty: it does not say
	KeepTrace job.Span      `json:"keep_trace"` // how long a trace is kept, such as 24h; empty: it does not say
}

// MadeRule is a rule and where it comes from.
type MadeRule struct {
	Rule
	CreatedAtMS int64  `json:"created_at_ms"` // 0: the file has it
	CreatedBy   string `json:"created_by"`
	FromFile    bool   `json:"from_file"`
}

func (s *Server) rules(r *request) (any, error) {
	c, ns := r.queues()
	if r.err != nil {
		return nil, r.err
	}
	list := []MadeRule{}
	for _, rule := range c.Snapshot().Rules(ns.Name) {
		list = append(list, MadeRule{Rule(rule.Rule), rule.CreatedMS, rule.CreatedBy, rule.FromFile})
	}
	return map[string]any{"rules": list}, nil
}

func (s *Server) putRule(r *request) (any, error) {
	var body Rule
	c, ns := r.queues()
	if r.decode(&body); r.err != nil {
		return nil, r.err
	}
	rule := control.Rule{Namespace: ns.Name, Rule: job.Rule(body), CreatedBy: r.who.name}
	act := Act{
		Action:    "set_rule",
		Namespace: ns.Name,
		Detail: fmt.Sprintf("match %s, rate %q, burst %d, tries %d, ttr %q, delay %q, keep_trace %q",
			body.Match, body.Rate, body.Burst, body.Tries, body.TTR, body.Delay, body.KeepTrace),
	}
	return s.changed(r, act, c.PutRule(r.ctx, rule), body)
}

func (s *Server) deleteRule(r *request) (any, error) {
	var body struct {
		Match string `json:"match"`
	}
	c, ns := r.queues()
	if r.decode(&body); r.err != nil {
		return nil, r.err
	}
	act := Act{
		Action:    "delete_rule",
		Namespace: ns.Name,
		Detail:    fmt.Sprintf("match %.255s", body.Match),
	}
	return s.changed(r, act, c.DeleteRule(r.ctx, ns.Name, body.Match), body)
}
