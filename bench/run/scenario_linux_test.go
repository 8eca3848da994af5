package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/proc"
)

// program is the path of a spillway. A test that measures with it is left out of a short run.
func program(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("a benchmark's test of itself")
	}
	path, err := proc.Build(t.TempDir(), "./cmd/spillway")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAShortRunKeepsEveryPromise runs both scenarios on the real binary and a
// real Redis. At this rate it says nothing about speed.
func TestAShortRunKeepsEveryPromise(t *testing.T) {
	t.Parallel()
	bin := program(t)
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
	m.bin = program(t)
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

// TestTheRowsOfJobsAreAccountedFor runs the rows of jobs in moments, on little. Only the
// accounts mean something.
func TestTheRowsOfJobsAreAccountedFor(t *testing.T) {
	t.Parallel()
	m := &measurement{
		settings: settings{
			redisServer: "redis-server", lmstfyServer: "no such program", partitions: 10, payload: 200, segment: 200 * time.Millisecond,
			jobs: jobSizes{calls: 20, bulkCalls: 10, stored: 2_000, polls: 20, watched: 10 * time.Millisecond, delayed: 4_000, due: 2_000},
		},
		fault: t.Errorf,
	}
	m.bin = program(t)
	groups, err := chosen("jobs")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, g := range groups {
		m.rows = g.rows()
		if err := g.round(t.Context(), m); err != nil {
			t.Fatalf("%s: %v", g.name, err)
		}
		for _, r := range m.rows {
			if rows += len(r.Values); len(r.Values) > 1 {
				t.Errorf("%s: got %v, want one figure", r.Measure, r.Values)
			}
		}
		if beside := strings.Contains(g.name, "lmstfy"); beside != (len(m.rows[0].Values) == 0) || beside != strings.Contains(m.rows[0].Note, "not measured: no lmstfy") {
			t.Errorf("%s: got %+v; without lmstfy there is a note in its place", g.name, m.rows[0])
		}
	}
	if rows != 11 {
		t.Errorf("got %d figures, want those of all rows but lmstfy's", rows)
	}
	rates, c, err := m.lmstfyForms(t.Context())
	if err != nil || rates.put <= 0 || rates.get <= 0 || rates.putBulk <= 0 || rates.getMany <= 0 || c.Residual != 0 {
		t.Errorf("lmstfy's forms: got %+v, %+v, %v", rates, c, err)
	}
}

func TestAJobsLedgerThatDoesNotAddUpIsAFault(t *testing.T) {
	t.Parallel()
	var faults int
	m := &measurement{settings: settings{redisServer: "redis-server", partitions: 1, payload: 200}, fault: func(string, ...any) { faults++ }}
	r, err := m.jobRig(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if err := r.publisher(t.Context(), m.queueNames(), messages(2, 200))(0); err != nil {
		t.Fatal(err)
	}
	for want, law := range []int64{2, 3} {
		if _, err := m.law(t.Context(), r, ready(law)); err != nil || faults != want {
			t.Errorf("2 jobs published, the loader counted %d: got %d faults, %v; want %d", law, faults, err, want)
		}
	}
	// Someone removes a job behind the ledger's back.
	if err := r.client.Del(t.Context(), "sw:{bench.0}:j:bench-0").Err(); err != nil {
		t.Fatal(err)
	}
	if residual, err := m.law(t.Context(), r, ready(2)); err != nil || residual != 2 || faults != 2 {
		t.Errorf("jobs removed: got a residual of %d, %d faults, %v; want 2 and 2", residual, faults, err)
	}
}

func TestIDsAreFoundInAnAnswer(t *testing.T) {
	t.Parallel()
	got := idsIn([]byte(`{"jobs":[{"id":"A1","data":"eA=="},{"id":"B2","data":"eQ=="},{"id":"cut`), `"id":"`)
	if len(got) != 2 || string(got[0]) != "A1" || string(got[1]) != "B2" {
		t.Errorf("got %q, want A1 and B2", got)
	}
}
