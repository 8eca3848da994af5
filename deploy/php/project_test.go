//go:build php

// Package php has the children of spillway work for PHP's queue libraries. Its tests run
// them over the libraries themselves: real jobs, pushed by the library, claimed and settled
// with Spillway's scripts.
package php

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/tidwall/gjson"

	luaphp "github.com/spillway-io/spillway/lua/php"
	"github.com/spillway-io/spillway/lua/redistest"
)

// flavor is a library, a child for it, and what its queues are like.
type flavor struct {
	name    string
	app     string   // the application below testdata
	library string   // its folder below bin/php, where .ci/deps php lays it; none: a package of the system
	child   []string // what php runs
	worker  []string // the library's own worker; a queue follows
	once    []string // the same for one job, with endless tries and a back-off of 3 s
	base    string   // the key of a queue, %s its name
	first   int      // attempts of a new payload, which its first delivery is not counted in
	counted int      // 1: attempts are counted when a payload goes back
	notify  int      // 1: one notification a payload
}

var (
	think3 = flavor{"think3", "think3", "think3", []string{"think3-child.php"},
		[]string{"think", "queue:work", "--sleep=0", "--queue"},
		[]string{"think", "queue:work", "--once", "--sleep=0", "--delay=3", "--queue"}, "{queues:%s}", 0, 0, 0}
	think2 = flavor{"think2", "think2", "think2", []string{"think2-child.php"},
		[]string{"work.php"}, []string{"once.php"}, "queues:%s", 1, 1, 0}
	laravel = flavor{"laravel", "laravel", "", []string{"laravel-child.php"},
		[]string{"artisan", "queue:work", "--sleep=0", "--queue"},
		[]string{"artisan", "queue:work", "--once", "--sleep=0", "--backoff=3", "--tries=0", "--queue"}, "laravel_database_queues:%s", 0, 0, 1}
	artisan = flavor{"artisan", "laravel", "", []string{"artisan", "spillway:child"},
		laravel.worker, laravel.once, laravel.base, 0, 0, 1}
)

// onEach runs a test for each flavor, in parallel, or for those that it names.
func onEach(t *testing.T, test func(t *testing.T, p *project), only ...flavor) {
	t.Helper()
	t.Parallel()
	if len(only) == 0 {
		only = []flavor{think3, think2, laravel, artisan}
	}
	for _, f := range only {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, f))
		})
	}
}

// project is an application with one queue of its own.
type project struct {
	flavor
	dir   string // what the README says to copy is copied
	queue string
	key   string // of the queue
	redis *redis.Client
	env   []string
	lease int // of a claim, ms
}

var queues atomic.Int64

func open(t testing.TB, f flavor) *project {
	t.Helper()
	p := &project{flavor: f, dir: t.TempDir(), queue: fmt.Sprintf("mails%d", queues.Add(1)), redis: redistest.SharedClient(t), lease: 60_000}
	p.key = fmt.Sprintf(f.base, p.queue)
	library, err := filepath.Abs(filepath.Join("../../bin/php", f.library))
	must(t, err)
	if _, err := os.Stat(library); f.library != "" && err != nil {
		t.Skipf("left out: there is no %s, which make test-php lays down where composer or THINK_QUEUE has it", library)
	}
	must(t, os.CopyFS(p.dir, os.DirFS(filepath.Join("testdata", f.app))))
	copied := map[string]string{"testdata/acts.php": "acts.php", f.app + "-child.php": f.app + "-child.php"}
	switch f.app {
	case "think3":
		must(t, os.CopyFS(filepath.Join(p.dir, "app/job"), os.DirFS("testdata/think/job")))
	case "think2":
		must(t, os.CopyFS(filepath.Join(p.dir, "application/job"), os.DirFS("testdata/think/job")))
	default:
		must(t, os.MkdirAll(filepath.Join(p.dir, "app/Console/Commands"), 0o700))
		copied["SpillwayChild.php"] = "app/Console/Commands/SpillwayChild.php"
	}
	for from, to := range copied {
		text, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(p.dir, to), text, 0o600))
	}
	address := p.redis.Options().Addr
	p.env = append(os.Environ(), "LIBRARY="+library, "SEEN="+filepath.Join(p.dir, "seen"),
		"REDIS_PORT="+address[strings.LastIndexByte(address, ':')+1:])
	return p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// php is a PHP program of the project, not yet started.
func (p *project) php(t testing.TB, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "php", args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	return cmd
}

// pushed is what an application pushes. Count is 1 where it is 0.
type pushed struct {
	Class string `json:"class"` // Note: by its name; Command: an object
	Data  any    `json:"data"`
	Delay int    `json:"delay"` // s
	Count int    `json:"count"`
	Queue string `json:"queue"`
}

// push lets the library push.
func (p *project) push(t testing.TB, jobs ...pushed) {
	t.Helper()
	var in bytes.Buffer
	for _, job := range jobs {
		job.Queue, job.Count = p.queue, max(job.Count, 1)
		must(t, json.NewEncoder(&in).Encode(job))
	}
	cmd := p.php(t, "push.php")
	cmd.Stdin = &in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("push.php: %v\n%s", err, out)
	}
}

// note is a job that is pushed by its name.
func note(acts ...string) pushed { return pushed{Class: "Note", Data: map[string]any{"acts": acts}} }

// command is a job that is pushed as an object, with the properties that with names.
func command(with map[string]any, acts ...string) pushed {
	data := map[string]any{"acts": append([]string{}, acts...)}
	maps.Copy(data, with)
	return pushed{Class: "Command", Data: data}
}

// delivery is one hand-out of a payload.
type delivery struct {
	seq, payload string
	attempt      int
}

var claim, settle = redis.NewScript(luaphp.Claim.Source), redis.NewScript(luaphp.Settle.Source)

// prefix is what the library puts before the keys of all its queues.
func (p *project) prefix() string {
	return strings.TrimSuffix(strings.TrimSuffix(p.base, "queues:%s"), "{queues:%s}")
}

func (p *project) keys() []string {
	ours := "sw:php:" + p.key
	return []string{p.key, p.key + ":delayed", p.key + ":reserved", p.key + ":notify", ours + ":account", ours + ":leases", ours + ":held",
		ours + ":dead", ours + ":letters"}
}

func (p *project) claimKeys() []string { return append(p.keys(), "sw:php:"+p.key+":out:1") }

func (p *project) claimArgs() []any {
	return []any{"token", 60_000, p.lease, 1, 1 << 20, p.counted, p.notify, 1}
}

// claim takes the next payload, which has to be there.
func (p *project) claim(t testing.TB) delivery {
	t.Helper()
	return p.claimed(t, claim.Run(context.Background(), p.redis, p.claimKeys(), p.claimArgs()...))
}

func (p *project) claimed(t testing.TB, cmd *redis.Cmd) delivery {
	t.Helper()
	reply, err := cmd.Slice()
	must(t, err)
	if len(reply) != 9 {
		t.Fatalf("claimed %v, want one payload of %s", reply, p.key)
	}
	d := delivery{seq: fmt.Sprint(reply[5]), payload: fmt.Sprint(reply[8])}
	before := number(reply[6])
	if before < 0 {
		before = p.countDelivery(t, d)
	}
	d.attempt = int(before) + 1 - p.first
	return d
}

// countDelivery has a delivery counted whose claim did not find the attempts, as a service does, and returns
// how many there were before.
func (p *project) countDelivery(t testing.TB, d delivery) (before int64) {
	t.Helper()
	verb, arg := "append", int64(p.first)
	before = arg
	if attempts := gjson.Get(d.payload, "attempts"); attempts.Exists() {
		verb, arg, before = "digits", int64(attempts.Index)+1, attempts.Int()
	}
	reply, err := settle.Run(context.Background(), p.redis, p.keys(), p.counted, p.notify, d.seq, verb, arg).Slice()
	if err != nil || len(reply) != 2 || number(reply[1]) != 6 {
		t.Fatalf("%s: %v, %v", verb, reply, err)
	}
	return before
}

// number is an integer of a script's answer.
func number(v any) (n int64) {
	_, _ = fmt.Sscan(fmt.Sprint(v), &n)
	return n
}

// settle does to the payload what a worker does after an answer, but at once.
func (p *project) settle(t testing.TB, d delivery, a answer) {
	t.Helper()
	verb := map[string]string{"delete": "ack", "release": "release", "forgot": "release", "failed": "bury"}[a.Do]
	reply, err := settle.Run(context.Background(), p.redis, p.keys(), p.counted, p.notify, d.seq, verb, 0).Slice()
	if err != nil || len(reply) != 2 || number(reply[1]) == 0 {
		t.Fatalf("settle %s: %v, %v", verb, reply, err)
	}
}

// seen is a line of what jobs, listeners and the exception handler noted.
type seen struct {
	Ran        int // the attempt
	Queue      string
	Body, Data string // md5
	Memory     int64  // bytes
	Handled    bool
	Hangs      bool
	Scoped     int // jobs of the scope so far
	Event      string
	Reported   string  // the class of an exception
	Failed     *string // the same, where failed() gets it
	FailedJobs string  `json:"failed_jobs"` // the connection
	Horizon    string  // one of its events
	HasFailed  bool    `json:"has_failed"`
	Delay      int     // s
	Connection string
}

func (p *project) seen(t testing.TB) []seen {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "seen"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var list []seen
	for line := range bytes.Lines(text) {
		var s seen
		must(t, json.Unmarshal(line, &s))
		list = append(list, s)
	}
	return list
}

// count tells how much of what was seen is so.
func (p *project) count(t testing.TB, is func(seen) bool) (n int) {
	t.Helper()
	for _, s := range p.seen(t) {
		if is(s) {
			n++
		}
	}
	return n
}

func ran(s seen) bool        { return s.Ran > 0 }
func failed(s seen) bool     { return s.Failed != nil }
func failedJobs(s seen) bool { return s.FailedJobs != "" }

func TestEveryFileIsPHP(t *testing.T) {
	t.Parallel()
	must(t, fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".php" {
			return err
		}
		if out, err := exec.CommandContext(t.Context(), "php", "-l", path).CombinedOutput(); err != nil {
			t.Errorf("%s", out)
		}
		return nil
	}))
}
