package job

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
)

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
