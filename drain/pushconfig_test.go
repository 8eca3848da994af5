package drain

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-io/spillway/partition"
)

func TestRulesOfPushAreChecked(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*PushRule){
		"":            func(*PushRule) {},
		"match":       func(r *PushRule) { r.Match = "mail[a]" },
		"match ":      func(r *PushRule) { r.Match = "" },
		"match  ":     func(r *PushRule) { r.Match = strings.Repeat("x", 256) },
		"match   ":    func(r *PushRule) { r.Match = ".x" },
		"sink":        func(r *PushRule) { r.Sink = "" },
		"concurrency": func(r *PushRule) { r.Concurrency = 0 },
		"rate":        func(r *PushRule) { r.Rate = -1 },
		"batch":       func(r *PushRule) { r.Batch = 129 },
		"backoff":     func(r *PushRule) { r.BackoffBase = 0 },
		"backoff ":    func(r *PushRule) { r.BackoffMax = time.Millisecond },
	} {
		rule := DefaultPushRule()
		rule.Match, rule.Sink = "*.mail-*", "crm"
		change(&rule)
		err := rule.Validate()
		var field *partition.FieldError
		if ok := errors.As(err, &field); ok != (want != "") || ok && field.Field != strings.TrimSpace(want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	rule := DefaultPushRule()
	rule.Match, rule.Sink = "*", "crm"
	for _, target := range []PushTarget{
		{Namespace: "mail", Rules: []PushRule{rule}},
		{Namespace: "mail", Rules: []PushRule{rule}, Sinks: map[string]PushSink{"crm": {Sink: &fakeSink{}}, "erp": {Sink: &fakeSink{}}}},
		{Namespace: "mail", Rules: []PushRule{{}}},
	} {
		if target.Validate() == nil {
			t.Errorf("%+v is taken", target)
		}
	}
}

func TestMetricsOfPushFollowTheConventions(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m, err := newPushMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	m.of("mail", "crm")
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("got %v, %v", problems, err)
	}
	if _, err := newPushMetrics(reg); err == nil {
		t.Error("they are registered twice")
	}
}
