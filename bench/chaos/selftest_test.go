//go:build seededbugs

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A checker that nothing turns red checks nothing. Each of these bugs is put
// into a copy of the sources that go build sees by way of an overlay, so the
// program itself holds no hook for them; the run must then break the check that
// is named. The plans are those that prove green without a bug.

// edit replaces a text that must be there.
type edit struct{ file, old, new string }

type seededBug struct {
	plan  *plan
	check string // one that must be broken
	edits []edit
}

const selftestTime = 5 * time.Second

// The plans: partitions overflow, entries go stale, neither. Two drainers each,
// and the faults that the bugs need; nobody is killed.
var (
	overflow = selftestPlan(9)
	stale    = selftestPlan(4)
	roomy    = selftestPlan(2)
	outage   = outagePlan()
)

func selftestPlan(seed uint64) *plan {
	return newPlan(seed, selftestTime, "lose-replies", "lose-requests", "reset", "fail", "slow", "hang-up")
}

// outagePlan has a sink that fails for longer than entries live.
func outagePlan() *plan {
	p := newPlan(4, selftestTime+2*time.Second, "lose-replies")
	p.faults = append(p.faults, planned{at: time.Second, lasts: p.maxAge + 2*time.Second, kind: "fail", target: "sink", inject: onSink(sinkFails)})
	return p
}

var seededBugs = map[string]seededBug{
	"the ledger forgets what it accepted": {roomy, "C1", []edit{
		{"lua/include/die.lua", "redis.call('DEL', m)", "redis.call('DEL', m)\n  redis.call('HSET', ledger, 'accepted', '0')"}}},
	"an eviction is not counted": {overflow, "C1", []edit{
		{"lua/produce.lua", "redis.call('HINCRBY', ledger, 'evicted', evicted)", ""}}},
	"the Redis client retries by itself": {roomy, "C2", []edit{
		{"partition/backend.go", "o.MaxRetries = -1", "o.MaxRetries = 3"},
		{"partition/script.go", "NoRetry() bool { return true }", "NoRetry() bool { return false }"}}},
	"what is unknown is acknowledged": {roomy, "C2", []edit{
		{"ingest/commit.go", "\tp.err = err\n", "\tif !errors.Is(err, partition.ErrUnknown) {\n\t\tp.err = err\n\t}\n"}}},
	"an idempotency key is not looked up": {roomy, "C3", []edit{
		{"lua/produce.lua", "redis.call('GET', seen)", "false"}}},
	"requests share memory": {roomy, "C4", []edit{
		{"ingest/request.go", "func newRequest() *request {\n\treturn &request{", "var shared = make([]byte, 64<<10)\n\nfunc newRequest() *request {\n\treturn &request{encoded: shared[:0], "}}},
	"a flush mixes partitions": {roomy, "C4", []edit{
		{"ingest/flush.go", "at := f.known[p.name]", "at := f.known[\"\"]"},
		{"ingest/flush.go", "f.known[name] = at", "f.known[\"\"] = at"}}},
	"dead letters are not kept": {roomy, "C5", []edit{
		{"lua/commit.lua", "redis.call('RPUSH', dead, ARGV[i])", ""}}},
	"what the sink refused counts as delivered": {roomy, "C6", []edit{
		{"drain/worker.go", "waits, deadline = true, b.Deadline", "r.mark(at, delivered)"}}},
	"expired counts as delivered": {stale, "C6", []edit{
		{"lua/include/drop_stale.lua", "'HINCRBY', ledger, 'expired'", "'HINCRBY', ledger, 'delivered'"}}},
	"a lease in seconds, not milliseconds": {roomy, "C7", []edit{
		{"lua/claim.lua", "int(now + lease), partition", "int(now + lease / 1000), partition"}}},
	"a batch id changes with the attempt": {roomy, "C7", []edit{
		{"drain/sink/sink.go", "uint64(e.Seq))", "uint64(e.Seq)+uint64(b.Attempt)<<60)"}}},
	"stale entries are presented": {outage, "C8", []edit{
		{"lua/claim.lua", "now - max_age", "now - 10 * max_age"},
		{"drain/worker.go", "life := ns.Policy.MaxAge - age", "life := 10*ns.Policy.MaxAge - age"}}},
	"fresh entries expire": {stale, "C8", []edit{
		{"lua/claim.lua", "now - max_age", "now - max_age / 20"}}},
	"one too few is evicted": {overflow, "C9", []edit{
		{"lua/produce.lua", "before + k - capacity)", "before + k - capacity - 1)"}}},
	"the newest are evicted": {overflow, "C9", []edit{
		{"lua/produce.lua", "redis.call('LTRIM', q, evicted, -1)", "redis.call('LTRIM', q, 0, -evicted - 1)"}}},
	"a partition with a rest is not active again": {roomy, "C10", []edit{
		{"lua/include/rearm.lua", "redis.call('ZADD', ready, int(now + linger), partition)", "redis.call('ZREM', ready, partition)"}}},
	"an empty partition is not forgotten": {roomy, "C10", []edit{
		{"lua/include/die.lua", "redis.call('ZREM', ready, partition)", ""}}},
	"a goroutine a request is left behind": {roomy, "C11", []edit{
		{"ingest/take.go", "\t<-r.done\n", "\t<-r.done\n\tgo func() { select {} }()\n"}}},
	"metrics count twice": {roomy, "C11", []edit{
		{"drain/metrics.go", "m.delivered.Add(float64(n[delivered]))", "m.delivered.Add(2 * float64(n[delivered]))"}}},
	"nothing is taken": {roomy, "C12", []edit{
		{"lua/produce.lua", "if active >= most then", "if active >= 0 then"}}},
}

func TestEverySeededBugBreaksItsCheck(t *testing.T) {
	t.Parallel()
	for name, bug := range seededBugs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bin := buildBroken(t, bug.edits)
			turn(t)
			res := play(t, bin, bug.plan)
			for _, v := range res.violations {
				if v.Check == bug.check {
					t.Log(v)
					return
				}
			}
			t.Errorf("got %v, want a violation of %s", res.violations, bug.check)
			var text strings.Builder
			res.print(&text)
			t.Log(text.String())
		})
	}
}

func TestThePlansOfTheSeededBugsAreGreenWithoutThem(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*plan{"overflow": overflow, "stale": stale, "roomy": roomy, "outage": outage} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turn(t)
			for _, v := range play(t, binary, p).violations {
				t.Error(v)
			}
		})
	}
}

// turns bounds how many runs there are at once: they measure time.
var turns = make(chan struct{}, 3)

func turn(t *testing.T) {
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
}

func play(t *testing.T, bin string, p *plan) *result {
	t.Helper()
	res, err := chaos(t.Context(), settings{bin: bin, redisServer: "redis-server", quiet: 6 * time.Second}, p, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	if res.dir != "" {
		t.Cleanup(func() { _ = os.RemoveAll(res.dir) })
	}
	return res
}

// buildBroken builds the program with its sources edited.
func buildBroken(t *testing.T, edits []edit) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for _, e := range edits {
		path, err := filepath.Abs(filepath.Join("..", "..", filepath.FromSlash(e.file)))
		if err != nil {
			t.Fatal(err)
		}
		from := path
		if copied, ok := replace[path]; ok {
			from = copied
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		broken := strings.ReplaceAll(string(text), e.old, e.new)
		if broken == string(text) {
			t.Fatalf("%s no longer holds %q", e.file, e.old)
		}
		replace[path] = filepath.Join(dir, strings.ReplaceAll(e.file, "/", "-"))
		if err := os.WriteFile(replace[path], []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "spillway")
	if out, err := exec.Command("go", "build", "-overlay", list, "-o", bin, "../../cmd/spillway").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}
