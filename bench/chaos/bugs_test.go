package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/bench/chaos/check"
)

// A check that no bug breaks proves nothing. go build reads each of these bugs
// from an overlay of the sources, so the program has no hook for them. The run
// must then break the named check. selftest_test.go runs them under a build tag,
// because they take minutes.

// edit replaces a text that must be there.
type edit struct{ file, old, new string }

type seededBug struct {
	plan  *plan
	check string // one that must be broken
	edits []edit
}

const selftestTime = 5 * time.Second

// The plans: partitions overflow, entries go stale, neither. Each has two
// drainers and the faults that the bugs need; no process is killed.
var (
	overflow = overflowPlan()
	stale    = selftestPlan(4)
	roomy    = selftestPlan(2)
	outage   = outagePlan()
	operated = operatedPlan()
	stepped  = steppedPlan()
)

func selftestPlan(seed uint64) *plan {
	return newPlan(seed, selftestTime, "lose-replies", "lose-requests", "reset", "fail", "slow", "hang-up")
}

// overflowPlan has partitions that a slow machine fills, too.
func overflowPlan() *plan {
	p := selftestPlan(9)
	p.capacity = 60
	return p
}

// outagePlan has a sink that fails for longer than entries live.
func outagePlan() *plan {
	p := newPlan(4, selftestTime+2*time.Second, "lose-replies")
	p.faults = append(p.faults, planned{at: time.Second, lasts: p.maxAge + 2*time.Second, kind: "fail", target: "sink", inject: onSink(sinkFails)})
	return p
}

// operatedPlan has operators who purge a queue, and reloads.
func operatedPlan() *plan {
	p := newPlan(2, selftestTime, "reload", "lose-replies")
	p.faults = append(p.faults, planned{at: 2 * time.Second, lasts: time.Second, kind: "operate", target: "operator", inject: operate})
	return p
}

// steppedPlan has a Redis whose clock goes forward, back, and is ahead in the end.
func steppedPlan() *plan {
	p := newPlan(2, selftestTime, "lose-replies")
	for i, ahead := range []time.Duration{4, -4, 4} {
		p.faults = append(p.faults, planned{at: time.Duration(i+1) * time.Second, offset: ahead * time.Second, kind: check.KindClockStep, target: "redis", inject: stepClock})
	}
	return p
}

var seededBugs = map[string]seededBug{
	"the ledger forgets what it accepted": {roomy, "C1", []edit{
		{"lua/include/meta.lua", "shard.high_water = math.max(shard.high_water, tail)", "shard.high_water = math.max(shard.high_water, tail)\n  shard.add.accepted = -shard.was.accepted"}}},
	"an eviction is not counted": {overflow, "C1", []edit{
		{"lua/produce.lua", "add.evicted = add.evicted + evicted", ""}}},
	"what may have run is sent again": {roomy, "C2", []edit{
		{"partition/backend/script.go", "noScript(c.cmd.Err()) && c.Args", "c.Args"}}},
	"what is unknown is acknowledged": {roomy, "C2", []edit{
		{"ingest/lane.go", "\tp.err = err\n", "\tif !errors.Is(err, partition.ErrUnknown) {\n\t\tp.err = err\n\t}\n"}}},
	"an idempotency key is not looked up": {roomy, "C3", []edit{
		{"lua/produce.lua", "redis.pcall('GET', seen)", "false"}}},
	"requests share memory": {roomy, "C4", []edit{
		{"ingest/request.go", "func newRequest() *request {\n\treturn &request{", "var shared = make([]byte, 64<<10)\n\nfunc newRequest() *request {\n\treturn &request{encoded: shared[:0], "}}},
	"a flush mixes partitions": {roomy, "C4", []edit{
		{"ingest/flush.go", "to := f.known[p.name]", "to := f.known[\"\"]"},
		{"ingest/flush.go", "f.known[name] = to", "f.known[\"\"] = to"}}},
	"dead letters are not kept": {roomy, "C5", []edit{
		{"lua/commit.lua", "redis.call('RPUSH', dead, ARGV[i])", ""}}},
	"what the sink rejected counts as delivered": {roomy, "C6", []edit{
		{"drain/worker.go", "waits, first = true, i", "r.mark(at, delivered)"}}},
	"expired counts as delivered": {outage, "C6", []edit{
		{"lua/include/stale.lua", "add.expired = add.expired + n - done", "add.delivered = add.delivered + n - done"}}},
	"a lease in seconds, not milliseconds": {roomy, "C7", []edit{
		{"lua/claim.lua", "int(now + lease)", "int(now + lease / 1000)"}}},
	"a batch id changes with the attempt": {roomy, "C7", []edit{
		{"drain/sink/sink.go", "uint64(e.Seq))", "uint64(e.Seq)+uint64(b.Attempt)<<60)"}}},
	"stale entries are presented": {outage, "C8", []edit{
		{"lua/claim.lua", "now - max_age", "now - 10 * max_age"},
		{"drain/freshness.go", "life := ns.Policy.MaxAge - age", "life := 10*ns.Policy.MaxAge - age"}}},
	"fresh entries expire": {stale, "C8", []edit{
		{"lua/claim.lua", "now - max_age", "now - max_age / 20"}}},
	"one too few is evicted": {overflow, "C9", []edit{
		{"lua/produce.lua", "if depth > capacity then\n    evicted = depth - capacity\n", "if depth > capacity + 1 then\n    evicted = depth - capacity - 1\n"}}},
	"the newest are evicted": {overflow, "C9", []edit{
		{"lua/produce.lua", "redis.call('LTRIM', q, evicted, -1)", "redis.call('LTRIM', q, 0, -evicted - 1)"}}},
	"a partition with a rest is not active again": {roomy, "C10", []edit{
		{"lua/commit.lua", "shard.due[#shard.due + 1] = rest_due(q, p)\n    shard.due[#shard.due + 1] = name\n", "redis.call('ZREM', ready, name)\n"}}},
	"an empty partition is not forgotten": {roomy, "C10", []edit{
		{"lua/include/ledger.lua", "redis.call('ZREM', ready, unpack(shard.ended_names))", ""}}},
	"a goroutine a request is left behind": {roomy, "C11", []edit{
		{"ingest/produce.go", "\t<-r.done\n", "\t<-r.done\n\tgo func() { select {} }()\n"}}},
	"metrics count twice": {roomy, "C11", []edit{
		{"drain/metrics.go", "m.delivered.Add(float64(n[delivered]))", "m.delivered.Add(2 * float64(n[delivered]))"}}},
	"nothing is taken": {roomy, "C12", []edit{
		{"lua/produce.lua", "if active >= max_active and not known then", "if active >= 0 then"}}},
	"a purge is not counted": {operated, "C13", []edit{
		{"lua/job/purge.lua", "totals.deleted = totals.deleted + gone", ""},
		{"lua/job/purge.lua", "totals.deleted = totals.deleted + 1", ""}}},
	"what goes out at most once goes out twice": {roomy, "C14", []edit{
		{"drain/atmostonce.go", "\t\t\tr.writeOnce(p)\n", "\t\t\tr.writeOnce(p)\n\t\t\tr.writeOnce(p)\n"}}},
	"a group forgets its last batch": {roomy, "C14", []edit{
		{"drain/sink/clickhouse/request.go", "range batches {", "range batches[:max(1, len(batches)-1)] {"}}},

	"an ack is not counted": {roomy, "J1", []edit{
		{"lua/job/ack.lua", "totals.acked = totals.acked + gone", ""}}},
	"a publish of unknown outcome is acknowledged": {roomy, "J2", []edit{
		{"partition/job/publish.go", "if p.Err = err; err != nil &&", "if errors.Is(err, backend.ErrUnknown) {\n\t\t\t\terr = nil\n\t\t\t}\n\t\t\tif p.Err = err; err != nil &&"}}},
	"the key of a publish is not kept": {roomy, "J3", []edit{
		{"lua/job/publish.lua", "redis.call('SET', KEYS[g.key]", "redis.call('EXISTS', KEYS[g.key]"}}},
	"an ack leaves the job": {roomy, "J4", []edit{
		{"lua/job/ack.lua", "quick = redis.call('ZREM', lease, members[1]) == 1", "quick = redis.call('ZSCORE', lease, members[1])"},
		{"lua/job/ack.lua", "gone = redis.call('HDEL', k.j, unpack(seqs))", "gone = #seqs"}}},
	"one try too many": {roomy, "J5", []edit{
		{"lua/job/claim.lua", "attempt >= tries and last_deadline", "attempt > tries and last_deadline"}}},
	"dead jobs are not kept": {roomy, "J6", []edit{
		{"lua/job/include/job.lua", "if keeps and ends and", "if not keeps and ends and"}}},
	"nobody is woken": {roomy, "J7", []edit{
		{"lua/job/include/queue.lua", "if length == pushed then", "if length < 0 then"}}},
	"ids are the bare clock": {stepped, "J3", []edit{
		{"lua/job/publish.lua", "math.max(now_us, account[1] + 1)", "now_us"}}},
	"a step of the clock is not noticed": {stepped, "J7", []edit{
		{"partition/backend/clock.go", "c.offset = min(max(c.offset, lowest), highest)", ""}}},
	"leases are not counted": {roomy, "J9", []edit{
		{"lua/job/include/slots.lua", "marks[#marks + 1], marks[#marks + 2] = '#' .. limit.name, int(limit.used)", ""}}},
	"a paused queue hands out": {operated, "J10", []edit{
		{"lua/job/claim.lua", "empty[i] = stopped[i] and true", ""}}},
	"no job is handed out": {roomy, "J8", []edit{
		{"lua/job/claim.lua", "while want > 0 and", "while want < 0 and"}}},

	"a plan is carried out twice": {roomy, "S1", []edit{
		{"lua/job/fire.lua", "if not seen[member] and found[y] == old then", "if found[y] then"}}},
	"a tick that fires is not counted": {roomy, "S2", []edit{
		{"lua/job/fire.lua", "first, run.m, s.fired + 1", "first, run.m, s.fired"}}},
	"a tick fires before its time": {roomy, "S3", []edit{
		{"partition/schedule/plan.go", "*job.Firing {\n\tf := ", "*job.Firing {\n\tnow += 1500\n\tf := "}}},
	"ticks of a pause are not counted": {roomy, "S4", []edit{
		{"lua/job/fire.lua", "s.paused + f.paused", "s.paused"}}},
	"no schedule fires": {roomy, "S5", []edit{
		{"lua/job/fire.lua", "if not s or s.flag ~= 'a' then", "if s then"}}},
}

// A testedBug must break the named test of its package instead: of batches that share a
// Write a run shows only what arrives.
type testedBug struct {
	pkg, test string
	edits     []edit
}

var testedBugs = map[string]testedBug{
	"an outcome of one member reaches another": {"drain", "TestNamedEntriesOfAGroupAreThoseOfTheirPartitionsOnly", []edit{
		{"drain/guard/outcome.go", "p := places[at.batch]", "p := places[0]"}}},
	"the throttle of one member holds up all": {"drain", "TestNamedEntriesOfAGroupAreThoseOfTheirPartitionsOnly", []edit{
		{"drain/guard/outcome.go", "list[i].After, list[i].Reason = 0, \"\"", "list[i].Reason = \"\""}}},
	"a member is forgotten when its group closes": {"drain", "TestGroupClosesAtTheBoundsOfItsSink", []edit{
		{"drain/groupqueue.go", "q.keep(q.waiting[n:])", "q.keep(q.waiting[min(n+1, len(q.waiting)):])"}}},
	"half of a rejected group is forgotten": {"drain", "TestPoisonEntryOfAGroupCostsOneRecord", []edit{
		{"drain/group.go", "parts = append(parts, part{p.members[n/2:], err}, part{p.members[:n/2], err})", "parts = append(parts, part{p.members[:n/2], err})"}}},
	"all members pay for the poison of one": {"drain", "TestPoisonEntryOfAGroupCostsOneRecord", []edit{
		{"drain/group.go", "o.All == guard.Rejected && n > 1", "o.All == guard.Rejected && n < 1"}}},
	"what went stale in the queue is written": {"drain", "TestWhatGoesStaleWhileItWaitsExpiresUnwritten", []edit{
		{"drain/group.go", "if m.Pending = m.StillFresh(now, minLife); m.Entries == 0 {", "if m.StillFresh(now, minLife); m.Entries == 0 {"}}},
	"suspects stay among the others": {"drain", "TestBadPartitionsAreSoonWrittenApart", []edit{
		{"drain/coalescer.go", "case m.failures > 0:", "case m.failures > maxFailures:"}}},
	"a failed group counts for each of its members": {"drain", "TestFailedGroupCountsOnceForTheBreaker", []edit{
		{"drain/guard/breaker.go", "if b.history.failed(s.Partition, f) {\n\t\t\tnewly = true", "if b.history.failed(s.Partition, f) {\n\t\t\tb.failures += newFailure\n\t\t\tnewly = true"}}},
}

// applyEdits returns the texts of the files that edits change, by absolute path.
// An edit whose text is not there any more fails the test.
func applyEdits(t *testing.T, edits []edit) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, e := range edits {
		path, err := filepath.Abs(filepath.Join("..", "..", filepath.FromSlash(e.file)))
		if err != nil {
			t.Fatal(err)
		}
		if texts[path] == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(text)
		}
		if !strings.Contains(texts[path], e.old) {
			t.Fatalf("%s no longer holds %q", e.file, e.old)
		}
		texts[path] = strings.ReplaceAll(texts[path], e.old, e.new)
	}
	return texts
}

func TestEverySeededBugStillHasItsPlaceAndEveryCheckABug(t *testing.T) {
	t.Parallel()
	missing := map[string]bool{}
	for n := range 14 {
		missing[fmt.Sprintf("C%d", n+1)] = true
	}
	for n := range 10 {
		missing[fmt.Sprintf("J%d", n+1)] = true
	}
	for n := range 5 {
		missing[fmt.Sprintf("S%d", n+1)] = true
	}
	for _, bug := range seededBugs {
		delete(missing, bug.check)
	}
	if len(missing) > 0 {
		t.Errorf("no bug for the checks %v", slices.Sorted(maps.Keys(missing)))
	}
	for _, bug := range seededBugs {
		applyEdits(t, bug.edits)
	}
	for _, bug := range testedBugs {
		applyEdits(t, bug.edits)
	}
}
