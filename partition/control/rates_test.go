package control_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

// Two processes never take more than the rate together, and end with less than a slice
// each unused.
func TestASharedRateIsExactOverTwoProcesses(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	a, b := start(t, url, prefix), start(t, url, prefix)
	limited := token("", "secret")
	limited.Produce = partition.Rate{Count: 6400, Per: 3600e9}
	a.must(a.CreateTokenIn(ctx, namespace("mail"), limited))
	hash := limited.Hash
	b.await("there", func(s *control.Snapshot) bool { return s.Token("mail", hash) != nil })
	var taken atomic.Int64
	var takers sync.WaitGroup
	for i := range 8 {
		l := []*process{a, b}[i%2].Snapshot().Token("mail", hash).Limiters.Produce
		random := rand.New(rand.NewPCG(uint64(i), 1)) // #nosec G404 -- a test
		takers.Go(func() {
			for rejected := 0; rejected < 100; {
				n := 1 + random.Int64N(40)
				if rejected > 0 {
					n = 1
				}
				got, wait, err := l.Take(ctx, n)
				switch {
				case err != nil:
					t.Error(err)
					return
				case wait != 0:
					rejected++
				case random.IntN(10) == 0:
					got.Refund()
				default:
					taken.Add(n)
				}
			}
		})
	}
	takers.Wait()
	if n := taken.Load(); n > 6400 || n < 6400-2*99 {
		t.Errorf("took %d of 6400, want all but less than a slice of 100 a process", n)
	}
}

func TestARateKeepsItsWindowOverChanges(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	p := prepare(t, url, prefix)
	limited := token("", "secret")
	limited.Consume = partition.Rate{Count: 10, Per: 3600e9}
	p.must(p.CreateTokenIn(ctx, namespace("mail"), limited))
	before := p.Snapshot().Token("mail", limited.Hash).Limiters
	if _, wait, err := before.Consume.Take(ctx, 10); wait != 0 || err != nil {
		t.Fatal(wait, err)
	}
	p.must(p.ChangeLimit(ctx, "mail", limited.Hash, func(*control.Limit) (*control.Limit, error) {
		return &control.Limit{Read: 3, Interval: 3600}, nil
	}))
	after := p.Snapshot().Token("mail", limited.Hash).Limiters
	if after.Consume != before.Consume || after.Read == nil || after.Write != nil {
		t.Errorf("got %+v, before %+v", after, before)
	}
	p.must(p.DeleteToken(ctx, "mail", limited.Hash))
	p.must(p.CreateToken(ctx, control.Token{Namespace: "mail", Hash: limited.Hash, Consume: limited.Consume}))
	if _, wait, err := p.Snapshot().Token("mail", limited.Hash).Limiters.Consume.Take(ctx, 1); wait <= 0 || err != nil {
		t.Errorf("a token made again has a new window: wait %v, %v", wait, err)
	}
}

// Without Redis nobody knows what others took, so nothing is taken.
func TestARateWithoutRedisIsRejected(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := start(t, server.URL(), "sw")
	limited := token("", "secret")
	limited.Produce = partition.Rate{Count: 64, Per: 3600e9}
	p.must(p.CreateTokenIn(ctx, namespace("mail"), limited))
	l := p.Snapshot().Token("mail", limited.Hash).Limiters.Produce
	server.Kill()
	if _, _, err := l.Take(ctx, 1); !errors.Is(err, backend.ErrUnavailable) && !errors.Is(err, backend.ErrUnknown) {
		t.Errorf("got %v", err)
	}
}

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
	traced.KeepTrace, traced.KeepAcked = job.Span(24*time.Hour), job.Span(time.Hour)
	for _, r := range []control.Rule{traced, rule(t, "crm-*", "2/s", 0), rule(t, "crm-eu", "", 7), rule(t, "crm-eu", "none", 7)} {
		a.must(a.PutRule(ctx, r))
	}
	b.await("three rules", func(s *control.Snapshot) bool { return len(s.Rules("mail")) == 3 && s.Rules("mail")[0].Rate.None })
	policy := b.Snapshot().Namespace("mail").Policy
	if got := fmt.Sprint(policy.Rules); got != "[{crm-eu none 0 0 7    } {crm-* 2/s 0 0 0    } {* 1/s 0 0 0   24h 1h}]" {
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

func TestAClientsRuleIsBehindThatOfAnOperator(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	a := start(t, url, prefix)
	a.must(a.CreateNamespace(ctx, namespace("mail")))
	a.must(a.PutRule(ctx, rule(t, "q", "5/s", 0)))
	tries := func(n int) func(*control.Rule) error { return func(r *control.Rule) error { r.Tries = n; return nil } }
	for _, queue := range []string{"q", "other"} {
		a.must(a.ChangeRule(ctx, "mail", queue, "app", tries(9)))
	}
	version := a.Snapshot().Version
	a.must(a.ChangeRule(ctx, "mail", "q", "app", tries(9)))
	if rules := a.Snapshot().Rules("mail"); len(rules) != 3 || rules[0].Tries != 0 || rules[0].Rate.String() != "5/s" || rules[0].Client ||
		rules[2].Match != "q" || rules[2].Tries != 9 || !rules[2].Client || a.Snapshot().Version != version {
		t.Errorf("got %+v, version %d after %d", rules, a.Snapshot().Version, version)
	}
	if a.must(a.ChangeRule(ctx, "mail", "other", "app", tries(0))); len(a.Snapshot().Rules("mail")) != 2 {
		t.Error("a rule that says nothing is kept")
	}
	var field *partition.FieldError
	if err := a.ChangeRule(ctx, "mail", "q", "app", tries(-1)); !errors.As(err, &field) {
		t.Errorf("got %v", err)
	}
	if err := a.ChangeRule(ctx, "nobody", "q", "app", tries(1)); !errors.Is(err, control.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	for range 2 { // that of the operator first
		a.must(a.DeleteRule(ctx, "mail", "q"))
	}
	if rules := a.Snapshot().Rules("mail"); len(rules) != 0 {
		t.Errorf("got %+v", rules)
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
	if unused := s.UnusedRules("mail"); len(unused) != 3 || unused[0].Match != "r2" || unused[0].Unused != "256 rules are the most, with those of the file" {
		t.Errorf("unused %v", unused)
	}
}

// Clients make rules for queues that they name. What they leave is for operators.
func TestClientsMakeHalfOfTheRulesThatTheFileLeaves(t *testing.T) {
	t.Parallel()
	for filed, most := range map[int]int{0: 128, 100: 78, 255: 0} {
		c := start(t, "embedded:", newPrefix())
		mail := control.Namespace{Name: "mail", Pool: "default", Policy: job.DefaultPolicy()}
		for i := range filed {
			mail.Policy.Rules = append(mail.Policy.Rules, job.Rule{Match: job.Pattern(fmt.Sprint("q", i)), Tries: 2})
		}
		c.Use(control.File{Namespaces: []control.Namespace{mail}}, c.pools)
		change := func(queue string, tries int) error {
			return c.ChangeRule(ctx, "mail", queue, "app", func(r *control.Rule) error { r.Tries = tries; return nil })
		}
		for i := range most {
			c.must(change(fmt.Sprint("r", i), 3))
		}
		if err := change("one-more", 3); !errors.Is(err, control.ErrTooMany) {
			t.Errorf("%d of the file: got %v after %d", filed, err, most)
		}
		c.must(c.PutRule(ctx, rule(t, "of-an-operator", "5/s", 0)))
		if most > 0 {
			c.must(change("r0", 4))
		}
	}
}

// What the file says of a queue is first, also where a client was before it.
func TestAClientsRuleFillsWhatTheFileDoesNotSay(t *testing.T) {
	t.Parallel()
	c := start(t, "embedded:", newPrefix())
	mail := control.Namespace{Name: "mail", Pool: "default", Policy: job.DefaultPolicy()}
	c.Use(control.File{Namespaces: []control.Namespace{mail}}, c.pools)
	c.must(c.ChangeRule(ctx, "mail", "q", "app", func(r *control.Rule) error { r.Tries, r.Delay = 1, job.Span(time.Hour); return nil }))
	mail.Policy.Rules = []job.Rule{{Match: "*", Tries: 5}}
	c.Use(control.File{Namespaces: []control.Namespace{mail}}, c.pools)
	ns := &job.Namespace{Name: "mail", Policy: c.Snapshot().Namespace("mail").Policy}
	if ns.Tries("q") != 5 || ns.Delay("q") != time.Hour || ns.Delay("other") != 0 {
		t.Errorf("%d tries, delays %v, %v", ns.Tries("q"), ns.Delay("q"), ns.Delay("other"))
	}
}

func TestTheLastQueuesThatClientsDeletedAreRemembered(t *testing.T) {
	t.Parallel()
	c := start(t, "embedded:", newPrefix())
	c.must(c.CreateNamespace(ctx, namespace("mail")))
	gone := func(queue string, gone bool) {
		c.must(c.ChangeRule(ctx, "mail", queue, "app", func(r *control.Rule) error { r.Gone = gone; return nil }))
	}
	for i := range 110 {
		gone(fmt.Sprint("q", i), true)
	}
	n := 0
	for i := range 110 {
		if c.Snapshot().Gone("mail", fmt.Sprint("q", i)) {
			n++
		}
	}
	if n != 100 || !c.Snapshot().Gone("mail", "q109") || len(c.Snapshot().Rules("mail")) != 0 {
		t.Errorf("%d are remembered, %d rules", n, len(c.Snapshot().Rules("mail")))
	}
	if gone("q109", false); c.Snapshot().Gone("mail", "q109") {
		t.Error("it is gone still")
	}
}
