package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestAShortRunKeepsEveryPromise runs both scenarios on the real binary and a
// real Redis. At this rate it says nothing about speed.
func TestAShortRunKeepsEveryPromise(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "spillway")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../cmd/spillway").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var out, progress bytes.Buffer
	code := 0
	for _, scenario := range []string{"throughput", "memory"} {
		args := []string{"-scenario", scenario, "-bin", bin, "-rate", "200", "-duration", "1s", "-partitions", "10", "-json"}
		code = max(code, command(t.Context(), args, &out, &progress))
	}
	acked := map[string]int64{}
	for dec := json.NewDecoder(&out); dec.More(); {
		var rep report
		if err := dec.Decode(&rep); err != nil {
			t.Fatal(err)
		}
		acked[rep.Scenario] = rep.Load.Acked
		for _, c := range rep.Checks {
			if !c.Held && c.Promise != promiseRate { // other tests share the machine
				t.Errorf("%s: %s: %s", rep.Scenario, c.Promise, c.Got)
			}
		}
	}
	if acked["throughput"] != 200 || acked["memory"] != memoryPartitions*memoryEntries {
		t.Errorf("got %v acknowledged, exit %d; want 200 and %d\n%s", acked, code, memoryPartitions*memoryEntries, progress.String())
	}
}

// TestTheSidesOfATableAreAccountedFor runs the rows that start every side, in
// moments. Only the accounts mean something.
func TestTheSidesOfATableAreAccountedFor(t *testing.T) {
	t.Parallel()
	m := &measurement{
		settings: settings{redisServer: "redis-server", wrkPath: "wrk", partitions: 10, payload: 200, segment: 200 * time.Millisecond, sparseRate: 20_000},
		fault:    t.Errorf,
	}
	m.bin = filepath.Join(t.TempDir(), "spillway")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", m.bin, "../../cmd/spillway").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	some, err := chosen("a,sparse,e,bcd,adapters")
	if err != nil {
		t.Fatal(err)
	}
	some = append(some, some[0])
	for i, g := range some {
		if i == len(some)-1 { // row a again, as where wrk is missing
			m.wrkPath = "no such program"
		}
		m.rows = g.rows()
		if err := g.round(t.Context(), m); err != nil {
			t.Fatalf("%s: %v", g.name, err)
		}
		for _, r := range m.rows {
			if len(r.Values) != 1 || r.Values[0] <= 0 {
				t.Errorf("%s %s: got %v, want one figure", r.Key, r.Measure, r.Values)
			}
		}
	}
	m.rows = hostileRows()
	for i, h := range hostiles {
		if h.Admin { // one of them is enough; speed means nothing here
			if err := m.besideHostile(t.Context(), h, m.rows[2*i], m.rows[2*i+1]); err != nil || len(m.rows[2*i].Other) != 1 || m.rows[2*i].Other[0] <= 0 {
				t.Errorf("%s beside %s: got %v, %v", h.Other, h.Does, m.rows[2*i].Other, err)
			}
		}
	}
}
