package control_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

func rule(t *testing.T, match, rate string, tries int) control.Rule {
	t.Helper()
	r := control.Rule{Namespace: "mail", Rule: job.Rule{Match: job.Pattern(match), Tries: tries}, CreatedBy: "root"}
	if err := r.Rate.UnmarshalText([]byte(rate)); err != nil {
		t.Fatal(err)
	}
	return r
}

// Rules made at run time come before those of the file, in every process, and end with their namespace.
func TestRulesCountInTheirOrderInEveryProcess(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	a, b := start(t, url, prefix), start(t, url, prefix)
	a.must(a.CreateNamespace(ctx, namespace("mail")))
	traced := rule(t, "*", "1/s", 0)
	traced.KeepTrace = job.Span(24 * time.Hour)
	for _, r := range []control.Rule{traced, rule(t, "crm-*", "2/s", 0), rule(t, "crm-eu", "", 7), rule(t, "crm-eu", "none", 7)} {
		a.must(a.PutRule(ctx, r))
	}
	b.await("three rules", func(s *control.Snapshot) bool { return len(s.Rules("mail")) == 3 && s.Rules("mail")[0].Rate.None })
	policy := b.Snapshot().Namespace("mail").Policy
	if got := fmt.Sprint(policy.Rules); got != "[{crm-eu none 0 7 } {crm-* 2/s 0 0 } {* 1/s 0 0 24h}]" {
		t.Errorf("got %s", got)
	}
	if err := a.DeleteRule(ctx, "mail", "none"); !errors.Is(err, control.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	a.must(a.DeleteRule(ctx, "mail", "*"))
	a.must(a.DeleteNamespace(ctx, "mail", nil))
	a.must(a.CreateNamespace(ctx, namespace("mail")))
	if got := a.Snapshot(); len(got.Rules("mail")) != 0 || len(got.Ignored) != 0 {
		t.Errorf("a new namespace has %v, ignored %v", got.Rules("mail"), got.Ignored)
	}
}

// A namespace whose rules of both kinds are too many is served by the file's: a start must not fail.
func TestRulesBeyondTheBoundAreNotUsed(t *testing.T) {
	t.Parallel()
	filed := control.Namespace{Name: "mail", Pool: "default", Policy: job.DefaultPolicy()}
	for i := range job.MaxRules - 2 {
		filed.Policy.Rules = append(filed.Policy.Rules, job.Rule{Match: job.Pattern(fmt.Sprint("q", i)), Tries: 2})
	}
	c := start(t, "embedded:", newPrefix())
	c.must(c.CreateNamespace(ctx, namespace("mail")))
	for i := range 5 {
		c.must(c.PutRule(ctx, rule(t, fmt.Sprint("r", i), "", 3)))
	}
	file := control.File{Namespaces: []control.Namespace{filed}}
	s := c.Preview(file)
	if got := s.Namespace("mail").Policy; len(got.Rules) != job.MaxRules || got.Validate() != nil || got.Rules[0].Match != "r0" {
		t.Errorf("%d rules, the first %v: %v", len(got.Rules), got.Rules[0], got.Validate())
	}
	if len(s.Ignored) != 4 { // the namespace, and three rules
		t.Errorf("ignored %q", s.Ignored)
	}
}
