package app

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain/guard"
)

// operator runs commands against a service.
type operator struct {
	t     *testing.T
	admin string
}

func (o operator) run(args ...string) (stdout, stderr string, code int) {
	o.t.Helper()
	return runCommand(o.t, map[string]string{"SPILLWAY_ADMIN": "http://" + o.admin}, "", args...)
}

// ask returns an answer as JSON.
func (o operator) ask(to any, args ...string) {
	o.t.Helper()
	out, stderr, code := o.run(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), to); err != nil {
		o.t.Fatalf("%q: exit %d, %v: %s%s", args, code, err, out, stderr)
	}
}

func TestAnOperatorSeesWhatIsLostAndWhy(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--sink=http://127.0.0.1:1/", "--capacity=3", "--max-age=1h")
	o := operator{t, s.adminListen}
	if out, stderr, code := o.run("check"); code != exitOK || out != "OK: no data is being lost\n" {
		t.Errorf("check: exit %d, %s%s", code, out, stderr)
	}
	eventually(t, "top says that data is being lost", func() bool {
		for range 4 { // which goes on: a rate is that of the last seconds
			res, err := http.Post("http://"+s.listen+"/v1/default/kart-7", "", strings.NewReader(`{"lap":1}`))
			if err != nil || res.StatusCode != http.StatusOK {
				t.Fatal(res, err)
			}
			_ = res.Body.Close()
		}
		out, _, _ := o.run("top", "--once")
		return strings.HasPrefix(out, "DATA IS BEING LOST OR REJECTED\n  loss    default: ") &&
			strings.Contains(out, "/s now; 100% in partition kart-7; partitions are full, and each keeps its newest; sink http://127.0.0.1:1/ fails for ") && strings.Contains(out, "connection refused; ")
	})
	if out, _, code := o.run("check", "default"); code != 2 || !strings.HasPrefix(out, "LOSS: ") || !strings.Contains(out, " evicted") {
		t.Errorf("a moment later, check: exit %d, %s", code, out)
	}
	var list struct {
		Total      int
		Partitions []struct {
			Namespace, Partition string
			Depth                int
			LastError            string `json:"last_error"`
		}
	}
	eventually(t, "the partition is listed", func() bool {
		o.ask(&list, "ls", "--sort=depth")
		return list.Total == 1 && list.Partitions[0].Partition == "kart-7" && list.Partitions[0].Depth == 3 && strings.Contains(list.Partitions[0].LastError, "refused")
	})
	var drops struct {
		Drops []struct{ Reason, Partition string }
	}
	o.ask(&drops, "drops", "--reason=evicted")
	if len(drops.Drops) == 0 || drops.Drops[0].Partition != "kart-7" {
		t.Errorf("got %+v", drops)
	}
	if _, stderr, code := o.run("ls", "nowhere"); code != exitFailure || !strings.Contains(stderr, "no_such_namespace") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if _, stderr, code := runCommand(t, map[string]string{"SPILLWAY_ADMIN": "http://" + s.listen}, "", "top"); code != exitFailure || !strings.Contains(stderr, "is it the admin port") {
		t.Errorf("the data port: exit %d, %s", code, stderr)
	}
}

func TestAnOperatorSeesThatAPushTargetIsAway(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "spillway.yaml", "sinks: {crm: \"http://user:canary@127.0.0.1:1/in\"}\nnamespaces:\n  mail: {kind: queue, push: [{match: \"out-*\", sink: crm}]}\n  sms: {kind: queue}\n")
	s := startServe(t, "--config="+file)
	o := operator{t, s.adminListen}
	for _, queue := range []string{"mail/out-eu", "mail/out-us", "sms/out-eu"} {
		res, err := http.Post("http://"+s.listen+"/v1/"+queue, "", strings.NewReader(`{"n":1}`))
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res, err)
		}
		_ = res.Body.Close()
	}
	eventually(t, "the overview has the sink that fails", func() bool {
		var all struct {
			Queues []struct {
				Namespace string
				Sinks     []struct {
					Label, State string
					LastError    string `json:"last_error"`
				}
			}
		}
		o.ask(&all, "ls", "--namespaces")
		if len(all.Queues) != 2 || len(all.Queues[0].Sinks) != 1 || len(all.Queues[1].Sinks) != 0 {
			t.Fatalf("got %+v", all)
		}
		crm := all.Queues[0].Sinks[0]
		if strings.Contains(crm.Label+crm.LastError, "canary") {
			t.Errorf("a password is shown: %+v", crm)
		}
		return crm.State == "failing" && strings.Contains(crm.LastError, "connection refused")
	})
	eventually(t, "check and top say that jobs wait, and for what", func() bool {
		out, _, code := o.run("check")
		top, _, _ := o.run("top", "--once")
		return code == 1 && strings.Contains(out, "  risk    mail: sink http://") && strings.Contains(out, "connection refused; 2 jobs") &&
			strings.HasPrefix(top, "NO DATA IS BEING LOST, BUT IT IS AT RISK\n  risk    mail: sink http://")
	})
}

func TestAnOperatorActsOnARunningService(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--sink=http://127.0.0.1:1/", "--max-age=1h")
	o := operator{t, s.adminListen}
	const entry = `{"lap":1,"email":"a@example.org"}`
	send := func(partition string) {
		t.Helper()
		res, err := http.Post("http://"+s.listen+"/v1/default/"+partition, "", strings.NewReader(entry))
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res, err)
		}
		_ = res.Body.Close()
	}
	for range 3 {
		send("kart-7")
		send("kart-8")
	}
	for _, step := range []struct {
		args           string
		code           int
		stdout, stderr string // that the output contains
	}{
		{"peek default kart-7", 0, `{"lap":1,"email":"***"}`, "3 of 3 waiting entries"},
		{"peek default kart-7 --unmasked --from newest --limit=1", 0, entry, "1 of 3 waiting entries"},
		{"peek default kart-9", 1, "", "no_such_partition"},
		{"pause default kart-7 --reason=moving", 0, "default/kart-7: delivery is paused (by ", ""},
		{"ls --paused", 0, "kart-7", ""},
		{"pause default kart-9", 0, "it has no entries or jobs now, a pause waits for its first one\n", ""},
		{"ls --paused", 0, "paused, no entries\n", ""},
		{"resume default kart-9", 0, "default/kart-9: delivery is not paused\n", ""},
		{"pause default", 0, "default: delivery is paused (by ", ""},
		{"check", 1, "default: delivery is paused (by ", ""},
		{"resume default", 0, "default: delivery is not paused\n", ""},
		{"resume default kart-7", 0, "default/kart-7: delivery is not paused\n", ""},
		{"purge default kart-7 --dry-run", 0, "nothing was changed", "found 3 entries"},
		{"purge default --older-than=1h --yes", 0, "nothing was changed", "found 0 entries"},
		{"purge default kart-7", 2, "", "add --yes to delete them (3)"},
		{"audit", 0, "moving", ""},
		{"top nowhere", 1, "", "no_such_namespace"},
	} {
		// The service learns of a pause, and frees a lease, within a second.
		var out, stderr string
		var code int
		ok := func() bool {
			out, stderr, code = o.run(strings.Fields(step.args)...)
			return code == step.code && strings.Contains(out, step.stdout) && strings.Contains(stderr, step.stderr)
		}
		for end := time.Now().Add(20 * time.Second); !ok(); {
			if time.Now().After(end) {
				t.Fatalf("%s: exit %d, %s%s; want %d, %q, %q", step.args, code, out, stderr, step.code, step.stdout, step.stderr)
			}
		}
	}
	var done struct{ Entries, Partitions int }
	left := 6
	eventually(t, "everything is purged", func() bool { // a leased partition is left alone
		o.ask(&done, "purge", "default", "--yes")
		left -= done.Entries
		return left == 0
	})
	if out, _, _ := o.run("ls", "--namespaces"); !strings.Contains(out, "default") {
		t.Errorf("got %s", out)
	}
}

func TestATailShowsWhatArrives(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--sink=null:", "--linger=1s")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	read, write := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"tail", "default", "--admin=http://" + s.adminListen}, config.Process{
			Stdin: strings.NewReader(""), Stdout: write, Stderr: io.Discard, LookupEnv: func(string) (string, bool) { return "", false },
		})
		_ = write.Close()
	}()
	sending, sent := context.WithCancel(ctx)
	go func() { // a tail begins with what arrives after it
		for sending.Err() == nil {
			if res, err := http.Post("http://"+s.listen+"/v1/default/kart-7", "", strings.NewReader(`{"lap":1}`)); err == nil {
				_ = res.Body.Close()
			}
			guard.Sleep(sending, 50*time.Millisecond)
		}
	}()
	line, err := bufio.NewReader(read).ReadString('\n')
	sent()
	if err != nil || !strings.Contains(line, "  kart-7  -  {\"lap\":1}") {
		t.Errorf("%v, got %q", err, line)
	}
	stop()
	go func() { _, _ = io.Copy(io.Discard, read) }()
	if code := <-ended; code != exitOK {
		t.Errorf("exit %d", code)
	}
}

func TestAnOperatorReplaysDeadLetters(t *testing.T) {
	t.Parallel()
	var repaired atomic.Bool
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !repaired.Load() {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "no such \x1b[31mtable")
		}
	}))
	t.Cleanup(sink.Close)
	s := startServe(t, "--sink="+sink.URL+"/", "--max-age=1h")
	o := operator{t, s.adminListen}
	for range 4 {
		res, err := http.Post("http://"+s.listen+"/v1/default/kart-7", "", strings.NewReader(`{"lap":1,"email":"a@example.org"}`))
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res, err)
		}
		_ = res.Body.Close()
	}
	var list struct {
		Total   int
		Letters []struct{ Letter, Reason, Detail string }
	}
	eventually(t, "all entries are dead letters", func() bool {
		o.ask(&list, "dead", "ls", "default")
		return list.Total == 4
	})
	first := list.Letters[0]
	out, _, _ := o.run("dead", "ls", "default", "--reason="+first.Reason, "--limit=2")
	if strings.Count(out, "kart-7") != 2 || !strings.Contains(out, `no such \u001b[31mtable`) {
		t.Errorf("got %s", out)
	}
	if out, stderr, code := o.run("dead", "show", "default", first.Letter); code != exitOK || !strings.Contains(out, `{"lap":1,"email":"***"}`) {
		t.Errorf("exit %d, %s%s", code, out, stderr)
	}
	for _, step := range []struct{ args, stdout string }{
		{"dead rm default --dry-run", "default: nothing was changed\n"},
		{"dead rm default --yes " + first.Letter, "default: deleted 1 dead letter\n"},
		{"dead replay default --yes --partition=kart-8", "default: nothing was changed\n"},
		{"dead replay default --yes", "default: replayed 3 dead letters\n"},
	} {
		repaired.Store(true)
		if out, stderr, code := o.run(strings.Fields(step.args)...); code != exitOK || out != step.stdout {
			t.Errorf("%s: exit %d, %s%s; want %s", step.args, code, out, stderr, step.stdout)
		}
	}
	if _, stderr, code := o.run("dead", "show", "default", first.Letter); code != exitFailure || !strings.Contains(stderr, "no_such_dead_letter") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	eventually(t, "the replayed entries are delivered", func() bool {
		out, _, _ := o.run("ls", "--namespaces", "-o", "json")
		return strings.Contains(out, `"delivered":3`)
	})
}

func TestATokenFileOnTheCommandLineBeatsTheVariableOfTheToken(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	_, stderr, code := runCommand(t, map[string]string{"SPILLWAY_API_TOKEN": "another"}, "", "ls", "--api-token-file="+missing)
	if code != exitUsage || !strings.Contains(stderr, "api_token_file: open "+missing) {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestAWrongCommandLineNamesTheHelpOfItsCommand(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"peek": "see spillway peek --help\n", "dead show kart": "see spillway dead show --help\n", "nosuch": "see spillway --help\n",
	} {
		if _, stderr, code := runCommand(t, nil, "", strings.Fields(args)...); code != exitUsage || !strings.HasSuffix(stderr, want) {
			t.Errorf("%s: exit %d, %s", args, code, stderr)
		}
	}
}

func TestSchedulesFromTheCommandLine(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--config="+writeFile(t, "spillway.yaml", "namespaces:\n  mail: {kind: queue}\n"))
	o := operator{t, s.adminListen}
	daily := writeFile(t, "daily.yaml", "cron: \"30 2 * * *\"\ntz: Europe/Berlin\ndata: {report: daily}\n")
	for _, step := range []struct{ args, want string }{
		{"check -f " + daily, "T02:30:00+0"},
		{"ls mail", "no schedules"},
		{"put mail reports daily -f " + daily, "reports/daily: created, rev 1, next 20"},
		{"put mail reports daily -f " + daily, "reports/daily: unchanged, rev 1"},
		{"ls mail", "reports  daily     active"},
		{"pause mail reports daily", "reports/daily: paused"},
		{"trigger mail reports daily", "reports/daily: published 1 job"},
		{"get mail reports daily", `{"cron":"30 2 * * *","tz":"Europe/Berlin","data":{"report":"daily"}}`},
		{"backfill mail reports daily --from=2026-10-01T00:00:00Z --to=2026-10-31T23:00:00Z --yes", "reports/daily: 31 ticks, published 31 jobs"},
		{"times mail reports daily --from=2026-10-24T12:00:00Z --count=2", "2026-10-25T02:30:00+02:00\n2026-10-26T02:30:00+01:00"},
		{"resume mail reports daily", "reports/daily: active"},
		{"rm mail reports daily", "reports/daily: deleted"},
		{"get mail reports daily", "no_such_schedule"},
		{"get mail reports _daily", "a schedule's name is"},
		{"rm mail reports daily", "no_such_schedule"},
		{"put mail reports daily -f " + daily + ".none", "no such file"},
	} {
		if stdout, stderr, _ := o.run(strings.Fields("schedules " + step.args)...); !strings.Contains(stdout+stderr, step.want) {
			t.Errorf("%s: got %s%s, want %s", step.args, stdout, stderr, step.want)
		}
	}
}
