package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
)

// openAt is a store with the namespace mail under a prefix.
func openAt(t testing.TB, url, prefix string, volatile bool, edit func(*Policy)) *Store {
	t.Helper()
	b := backendtest.Open(t, backend.Config{URL: url})
	p := DefaultPolicy()
	if edit != nil {
		edit(&p)
	}
	s, err := Open(Config{Prefix: prefix, Volatile: volatile, Required: []string{"mail"}, Namespaces: map[string]Policy{"mail": p}}, b, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Check(t.Context()) // without one nothing is stored; some want a server that is away
	return s
}

func bufferAt(t *testing.T, url, prefix string) *partition.Store {
	t.Helper()
	s, err := partition.Open(partition.Config{Backend: backendtest.Open(t, backend.Config{URL: url}), Prefix: prefix, Namespaces: map[string]partition.Policy{"mail": partition.DefaultPolicy()}}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// rejection checks that a Check ends with ErrIncompatible, says what to do, and that nothing is
// published or claimed then.
func rejection(t *testing.T, s *Store, want string) {
	t.Helper()
	_, err := s.Check(t.Context())
	if !errors.Is(err, backend.ErrIncompatible) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	ns := s.Namespace("mail")
	b := Batch{
		Publishes: []*Publish{{Namespace: ns, Queue: "q", Tries: 1, Messages: []Message{{}}}},
		Claims:    []*Claim{{Namespace: ns, Queues: []string{"q"}, Count: 1}},
	}
	s.Run(t.Context(), s.NewLane(), &b)
	if !errors.Is(b.Publishes[0].Err, backend.ErrIncompatible) || !errors.Is(b.Claims[0].Err, backend.ErrIncompatible) {
		t.Errorf("publish: %v, claim: %v", b.Publishes[0].Err, b.Claims[0].Err)
	}
}

func TestABufferAndQueuesDoNotShareANamespace(t *testing.T) {
	t.Parallel()
	url := "redis://" + redistest.Shared(t)
	if _, err := bufferAt(t, url, "kindbuffer").Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	rejection(t, openAt(t, url, "kindbuffer", true, nil), "kind: buffer")
	if kind := redistest.SharedClient(t).HExists(t.Context(), "kindbuffer:{mail.0}:ledger", "kind").Val(); kind {
		t.Error("the check wrote into the ledger of a buffer")
	}
	if _, err := openAt(t, url, "kindqueue", true, nil).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := bufferAt(t, url, "kindqueue").Check(t.Context())
	if !errors.Is(err, backend.ErrIncompatible) || !strings.Contains(err.Error(), "kind: queue") {
		t.Errorf("got %v", err)
	}
}

func TestTheNumberOfShardsIsFixedAtFirstUse(t *testing.T) {
	t.Parallel()
	url := "redis://" + redistest.Shared(t)
	shards := func(n int) func(*Policy) { return func(p *Policy) { p.Shards = n } }
	if _, err := openAt(t, url, "fixed", true, shards(2)).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, same := range []int{2, partition.AutoShards} {
		s := openAt(t, url, "fixed", true, shards(same))
		if _, err := s.Check(t.Context()); err != nil || s.Namespace("mail").ShardCount() != 2 {
			t.Errorf("%d shards, %v", s.Namespace("mail").ShardCount(), err)
		}
	}
	for _, other := range []int{1, 3} {
		rejection(t, openAt(t, url, "fixed", true, shards(other)), "fixed at first use, which was with 2")
	}
	redistest.SharedClient(t).HSet(t.Context(), "fixed:{mail.0}:ledger", "format", 6)
	rejection(t, openAt(t, url, "fixed", true, shards(2)), "upgrade the program")
}

func TestCheckWantsAServerThatKeepsJobs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openAt(t, server.URL(), "sw", false, nil)
	rejection(t, s, "append-only file")
	server.Client().ConfigSet(t.Context(), "appendonly", "yes")
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Client().ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru")
	rejection(t, s, "noeviction")
	server.Client().ConfigSet(t.Context(), "maxmemory-policy", "noeviction")
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	publishOne(t, s, "q")
}

func TestCheckNamesMissingRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	url := "redis://worker:secret@" + server.Addr
	for rules, want := range map[string]string{
		"~sw:* &* +@all -hscan -lpush": "HSCAN, LPUSH",
		"~other:* &* +@all":            "on the keys sw:{*}*",
		"~sw:* resetchannels +@all":    "'&sw:{*}:w:*'",
	} {
		args := []any{"acl", "setuser", "worker", "reset", "on", ">secret"}
		for _, rule := range strings.Fields(rules) {
			args = append(args, rule)
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		rejection(t, openAt(t, url, "sw", true, nil), want)
	}
	admin.Do(t.Context(), "acl", "setuser", "worker", "reset", "on", ">secret", "~sw:*", "&sw:{*}:w:*", "+@all")
	s := openAt(t, url, "sw", true, nil)
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys := admin.Keys(t.Context(), "*permission*").Val(); len(keys) > 0 {
		t.Errorf("the probe left %v", keys)
	}
}

// A right that one namespace lacks is known after one look: its publishes cost the others nothing.
func TestADeniedNamespaceIsRejectedWithoutARoundTrip(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	admin.Do(t.Context(), "acl", "setuser", "worker", "reset", "on", ">secret", "~sw:{mail*", "&*", "+@all")
	s := openAt(t, "redis://worker:secret@"+server.Addr, "sw", true, nil)
	if err := s.SetNamespaces(t.Context(), map[string]Policy{"mail": DefaultPolicy(), "late": DefaultPolicy()}); !errors.Is(err, backend.ErrIncompatible) {
		t.Fatalf("got %v", err)
	}
	known, err := s.space.Known(s.Namespace("late").Home)
	if !known || !errors.Is(err, backend.ErrIncompatible) || !strings.Contains(err.Error(), "'~sw:{*}*'") {
		t.Errorf("known %v: %v", known, err)
	}
	publishOne(t, s, "q")
	warnings, err := s.Check(t.Context())
	if err != nil || !slices.ContainsFunc(warnings, func(text string) bool { return strings.Contains(text, "ACL SETUSER") }) {
		t.Errorf("got %v, %q", err, warnings)
	}
}

// A Redis that may delete jobs takes none, also where it passed before.
func TestAClusterThatBeginsToEvictTakesNoJobs(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 1)
	s := openAt(t, servers.URL(), "sw", true, nil)
	redistest.Until(t, most, "the store can be used", func() bool { _, err := s.Check(t.Context()); return err == nil })
	policy := servers.Masters[0].Client()
	policy.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru")
	rejection(t, s, "noeviction")
	p := &Publish{Namespace: s.Namespace("mail"), Queue: "q", Tries: 1, Messages: []Message{{}}}
	runOne(s, s.NewLane(), &Batch{Publishes: []*Publish{p}}, most)
	if !errors.Is(p.Err, backend.ErrIncompatible) {
		t.Errorf("publish: %v", p.Err)
	}
	policy.ConfigSet(t.Context(), "maxmemory-policy", "noeviction")
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	publishOne(t, s, "q")
}

func TestNamespacesThatComeLaterAreCheckedBeforeTheirFirstJob(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openAt(t, server.URL(), "sw", true, nil)
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	policies := map[string]Policy{"mail": DefaultPolicy(), "late": DefaultPolicy()}
	if err := s.SetNamespaces(t.Context(), policies); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if s.Namespace("late") == nil {
		t.Fatal("the namespace is not there")
	}
	server.Launch()
	startPromoter(t, s) // which checks what passed no check yet
	c := &Claim{Namespace: s.Namespace("late"), Queues: []string{"q"}, Count: 1}
	redistest.Until(t, most, "the new namespace works", func() bool {
		s.Run(context.Background(), s.NewLane(), &Batch{Claims: []*Claim{c}})
		return c.Err == nil
	})
	if got := server.Client().HGet(t.Context(), "sw:{late.0}:ledger", "kind").Val(); got != "queue" {
		t.Errorf("the ledger says kind %q", got)
	}
}

func TestANamespaceThatCameLaterFailsNoCheck(t *testing.T) {
	t.Parallel()
	url := "redis://" + redistest.Shared(t)
	redistest.SharedClient(t).HSet(t.Context(), "later:{wrong.0}:ledger", "format", 1)
	s := openAt(t, url, "later", true, nil)
	if err := s.SetNamespaces(t.Context(), map[string]Policy{"mail": DefaultPolicy(), "wrong": DefaultPolicy()}); !errors.Is(err, backend.ErrIncompatible) {
		t.Errorf("got %v", err)
	}
	warnings, err := s.Check(t.Context())
	if err != nil || !slices.ContainsFunc(warnings, func(text string) bool { return strings.Contains(text, "namespace wrong is rejected") }) {
		t.Errorf("got %v, %q", err, warnings)
	}
	publishOne(t, s, "q")
	c := &Claim{Namespace: s.Namespace("wrong"), Queues: []string{"q"}, Count: 1}
	runOne(s, s.NewLane(), &Batch{Claims: []*Claim{c}}, most)
	if !errors.Is(c.Err, backend.ErrIncompatible) {
		t.Errorf("claim: %v", c.Err)
	}
}

// The rights that OPERATING.md lists are enough for everything that the store does.
func TestTheDocumentedRightsAreEnough(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile(`redis-cli ACL SETUSER spillway ((?:[^\n]|\n        )+)`).FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 2 {
		t.Fatal("OPERATING.md shows no rights for queues")
	}
	server := redistest.Start(t)
	admin := server.Client()
	for _, block := range blocks[:2] {
		args := []any{"acl", "setuser", "spillway"}
		for _, rule := range strings.Fields(strings.ReplaceAll(block[1], `\`, "")) {
			args = append(args, strings.Trim(rule, "'"))
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := openAt(t, "redis://spillway:PASSWORD@"+server.Addr, "sw", true, nil)
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns := s.Namespace("mail")
	startPromoter(t, s)
	w, e := startWakes(t, s)
	w.Want(ns, 0, "q")
	e.until(t, 1, WakeSubscribed, "q")
	store1(t, s, "q", 3, 10*time.Millisecond, time.Hour)
	e.until(t, 1, WakeHeard, "q")
	l := s.NewLane()
	c := &Claim{Namespace: ns, Queues: []string{"q"}, TTR: time.Minute, Count: 3}
	redistest.Until(t, most, "jobs are claimed", func() bool {
		runOne(s, l, &Batch{Claims: []*Claim{c}}, most)
		return len(c.Jobs) > 1
	})
	runOne(s, l, &Batch{
		Acks:    []*Ack{{Namespace: ns, Queue: "q", Ref: c.Jobs[0].Ref}},
		Settles: []*Settle{{Namespace: ns, Queue: "q", Ref: c.Jobs[1].Ref, Attempt: 1, Verb: Bury}},
	}, most)
	_, _, errDead := s.Dead(t.Context(), ns, "q", 0, 10)
	_, errRespawn := s.ActOnDead(t.Context(), &DeadAct{Namespace: ns, Queue: "q", Verb: RespawnDead, Limit: 10})
	_, errPeek := s.Peek(t.Context(), ns, "q")
	_, errCounts := s.Counts(t.Context(), ns, "q")
	_, errForecast := s.Forecast(t.Context(), ns, "q", time.Second, 5)
	_, errAll := s.Forecast(t.Context(), ns, "", time.Second, 5)
	_, errPurge := s.Purge(t.Context(), ns, "q", true)
	expirer := NewExpirer(s)
	expirer.round(t.Context())
	s.space.CheckRollback(t.Context(), s.homes())
	ledgerOf(t, s)
	if err := errors.Join(errDead, errRespawn, errPeek, errCounts, errForecast, errAll, errPurge); err != nil {
		t.Error(err)
	}
	if log := admin.Do(t.Context(), "acl", "log").Val().([]any); len(log) > 0 {
		t.Errorf("denied: %v", log)
	}
}

func TestJobsThatALowerSpreadLeavesBehindAreNoticed(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"embedded": "embedded:", "redis": "redis://" + redistest.Shared(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := backendtest.Open(t, backend.Config{URL: url})
			core, logs := observer.New(zap.WarnLevel)
			wide, narrow := DefaultPolicy(), DefaultPolicy()
			wide.Shards, wide.Spread, narrow.Shards = 3, map[string]int{"q": 3}, 3
			reg := prometheus.NewRegistry()
			s, err := Open(Config{Prefix: fmt.Sprint("in", prefixes.Add(1)), Volatile: true, Namespaces: map[string]Policy{"mail": wide}}, b, reg, zap.New(core))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			ns := s.Namespace("mail")
			for i, shard := range ns.Shards("q") {
				p := &Publish{Namespace: ns, Queue: "q", Shard: shard, Tries: 1, Messages: payload(strings.Repeat("x", i+1))}
				p.Messages = append(p.Messages, payload("y")...)
				if runOne(s, s.NewLane(), &Batch{Publishes: []*Publish{p}}, most); p.Err != nil {
					t.Fatal(p.Err)
				}
			}
			e := NewExpirer(s)
			look := func(what string, p *Policy, jobs, lines int) {
				t.Helper()
				policies := map[string]Policy{}
				if p != nil {
					policies["mail"] = *p
				}
				if err := s.swap(policies); err != nil {
					t.Fatal(err)
				}
				e.plan(t.Context())
				if p != nil && testutil.ToFloat64(s.metrics.stranded) != float64(jobs) || p == nil && testutil.CollectAndCount(s.metrics.stranded) > 0 {
					t.Errorf("%s: the gauge is not %d", what, jobs)
				}
				if logs.Len() != lines {
					t.Errorf("%s: %d lines in the log, want %d: %v", what, logs.Len(), lines, logs.All())
				}
			}
			look("wide", &wide, 0, 0)
			look("narrow", &narrow, 4, 1)
			look("still narrow", &narrow, 4, 1)
			look("wide again", &wide, 0, 1)
			look("narrow again", &narrow, 4, 2)
			look("gone", nil, 0, 2)
			if len(e.stranded) > 0 {
				t.Error("it remembers a namespace that is gone")
			}
			if line := logs.All()[0]; line.ContextMap()["queue"] != "q" || line.ContextMap()["jobs"] != int64(4) || !strings.Contains(line.Message, "raise it again") {
				t.Errorf("the log says %v %v", line.Message, line.ContextMap())
			}
		})
	}
}
