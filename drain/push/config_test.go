package push

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

func TestRulesOfPushAreChecked(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Rule){
		"":            func(*Rule) {},
		"match":       func(r *Rule) { r.Match = "mail[a]" },
		"match ":      func(r *Rule) { r.Match = "" },
		"match  ":     func(r *Rule) { r.Match = job.Pattern(strings.Repeat("x", 256)) },
		"match   ":    func(r *Rule) { r.Match = ".x" },
		"sink":        func(r *Rule) { r.Sink = "" },
		"writes":      func(r *Rule) { r.Writes = 0 },
		"writes ":     func(r *Rule) { r.MinWrites, r.Target = 9, time.Second },
		"target":      func(r *Rule) { r.MinWrites = 1 },
		"target ":     func(r *Rule) { r.Target = time.Second },
		"defer_for":   func(r *Rule) { r.DeferFor = time.Millisecond },
		"defer_for ":  func(r *Rule) { r.DeferFor = 25 * time.Hour },
		"defer_for  ": func(r *Rule) { r.DeferFor, r.Batch = time.Minute, 2 },
		"batch":       func(r *Rule) { r.Batch = 129 },
		"backoff":     func(r *Rule) { r.BackoffBase = 0 },
		"backoff ":    func(r *Rule) { r.BackoffMax = time.Millisecond },
	} {
		rule := DefaultRule()
		rule.Match, rule.Sink = "*.mail-*", "crm"
		change(&rule)
		err := rule.Validate()
		var field *partition.FieldError
		if ok := errors.As(err, &field); ok != (want != "") || ok && field.Field != strings.TrimSpace(want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	rule := DefaultRule()
	rule.Match, rule.Sink = "*", "crm"
	for _, target := range []Target{
		{Namespace: "mail", Rules: []Rule{rule}},
		{Namespace: "mail", Rules: []Rule{rule}, Sinks: map[string]Sink{"crm": {Sink: &fakeSink{}}, "erp": {Sink: &fakeSink{}}}},
		{Namespace: "mail", Rules: []Rule{{}}},
	} {
		if target.Validate() == nil {
			t.Errorf("%+v is taken", target)
		}
	}
}

func TestMetricsOfPushFollowTheConventions(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m, err := newMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	m.of("mail", "crm")
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("got %v, %v", problems, err)
	}
	if _, err := newMetrics(reg); err == nil {
		t.Error("they are registered twice")
	}
}
