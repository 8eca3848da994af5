package e2e

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/lua/redistest"
)

// shellChild is a child of the mode lines, in sh: it writes the seq of each job into a file, and acks it.
const shellChild = `echo '{"do":"ready"}' >&3
while read -r line; do
  seq=${line#*\"seq\":\"}; seq=${seq%%\"*}
  case $line in *hang*) echo $$ >"$0.pid"; sleep 1000;; esac
  echo "$seq" >>"$0"
  echo "{\"seq\":\"$seq\",\"do\":\"delete\"}" >&3
done`

// workOn starts `spillway work` on a namespace and queue of a server.
func workOn(t *testing.T, s *reloading, on string, env []string, args ...string) (cmd *exec.Cmd, wait func() int, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log")
	stderr, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(binary, slices.Concat([]string{"work"}, strings.Fields(on), []string{"--server", "http://" + s.data}, args)...)
	cmd.Env, cmd.Stderr = append([]string{"PATH=" + os.Getenv("PATH")}, env...), stderr
	proc.KillWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	wait = func() int { <-done; return cmd.ProcessState.ExitCode() }
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = stderr.Close()
		if wait(); t.Failed() {
			text, _ := os.ReadFile(log)
			t.Logf("log of work:\n%s", text)
		}
	})
	return cmd, wait, log
}

// mailJobs are the jobs of an embedded server's queues.
func mailJobs(t *testing.T, extra string) (*reloading, *sdk.Queues) {
	t.Helper()
	return mailJobsIn(t, "embedded:", extra)
}

func mailJobsIn(t *testing.T, redis, extra string) (*reloading, *sdk.Queues) {
	t.Helper()
	s := serveFile(t, fmt.Sprintf("redis: %q\npools: {default: {volatile: true}}\nnamespaces:\n  mail: {kind: queue%s}\n", redis, extra))
	s.ready(200)
	token := ""
	if extra != "" {
		token = "c4n4ry"
	}
	jobs, err := sdk.NewQueues("http://"+s.data, sdk.QueuesConfig{Namespace: "mail", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(jobs.Close)
	return s, jobs
}

func publishMail(t *testing.T, jobs *sdk.Queues, n int, payload string) {
	t.Helper()
	payloads := make([][]byte, n)
	for i := range payloads {
		payloads[i] = []byte(payload)
	}
	if _, err := jobs.PublishMany(t.Context(), "welcome", payloads, sdk.PublishOptions{Tries: 9}); err != nil {
		t.Fatal(err)
	}
}

func TestWorkDoesEachJobOnceInEachMode(t *testing.T) {
	t.Parallel()
	for mode, program := range map[string][]string{
		"lines": {"/bin/sh", "-c", shellChild},
		"each":  {"/bin/sh", "-c", `cat >/dev/null; echo "$JOB_ID:$JOB_ATTEMPT" >>"$0"`},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, jobs := mailJobs(t, fmt.Sprintf(`, tokens: ["sha256:%x"]`, sha256.Sum256([]byte("c4n4ry"))))
			out := filepath.Join(t.TempDir(), "done")
			all := 200
			if testing.Short() {
				all = 50
			}
			publishMail(t, jobs, all, "{}")
			cmd, wait, _ := workOn(t, s, "mail welcome", []string{"SPILLWAY_TOKEN=c4n4ry"}, append([]string{"--mode", mode, "--children", "8", "--"}, append(program, out)...)...)
			eventually(t, "all are acked", func() bool {
				counts, err := jobs.Counts(t.Context(), "welcome")
				return err == nil && counts.Ready+counts.Pending+counts.Dead == 0
			})
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if code := wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			text, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			done := map[string]bool{}
			for line := range strings.Lines(string(text)) {
				done[line] = true
			}
			if n := strings.Count(string(text), "\n"); n != all || len(done) != all {
				t.Errorf("%d jobs were done %d times", len(done), n)
			}
		})
	}
}

// A worker that is killed leaves no child, and its jobs come again after their lease.
func TestAKilledWorkerLeavesNoChildAndNoJobBehind(t *testing.T) {
	t.Parallel()
	redis := redistest.StartWithClock(t)
	s, jobs := mailJobsIn(t, redis.URL(), "")
	out := filepath.Join(t.TempDir(), "done")
	publishMail(t, jobs, 1, "hang")
	cmd, wait, _ := workOn(t, s, "mail welcome", nil, "--ttr", "1m", "--", "/bin/sh", "-c", shellChild, out)
	var pid int
	eventually(t, "the child has the job", func() bool {
		text, _ := os.ReadFile(out + ".pid")
		_, err := fmt.Sscan(string(text), &pid)
		return err == nil
	})
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil || strings.Contains(string(environ), "SPILLWAY") {
		t.Errorf("got the environment %q, %v", environ, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wait()
	eventually(t, "the child has ended", func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
	redis.Advance(time.Hour)
	got, err := jobs.Claim(t.Context(), []string{"welcome"}, sdk.ClaimOptions{Wait: 20e9})
	if err != nil || len(got) != 1 || got[0].Attempt != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestSignalsPauseAWorkerAndLetItGoOn(t *testing.T) {
	t.Parallel()
	s, jobs := mailJobs(t, "")
	out, metrics := filepath.Join(t.TempDir(), "done"), redistest.FreeAddr(t)
	cmd, _, log := workOn(t, s, "mail welcome", nil, "--metrics", metrics, "--", "/bin/sh", "-c", shellChild, out)
	empty := func() bool {
		counts, err := jobs.Counts(t.Context(), "welcome")
		return err == nil && counts.Ready+counts.Pending == 0
	}
	publishMail(t, jobs, 1, "{}")
	eventually(t, "a job is done", empty)
	for _, path := range []string{"/readyz", "/metrics"} {
		response, err := http.Get("http://" + metrics + path)
		if err != nil || response.StatusCode != 200 {
			t.Fatal(path, response, err)
		}
		_ = response.Body.Close()
	}
	signal := func(sent syscall.Signal, paused string) {
		if err := cmd.Process.Signal(sent); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the log says paused "+paused, func() bool {
			text, _ := os.ReadFile(log)
			return strings.Contains(string(text), `"paused":`+paused)
		})
	}
	signal(syscall.SIGUSR2, "true")
	publishMail(t, jobs, 5, "{}")
	if empty() {
		t.Error("a paused worker did jobs")
	}
	signal(syscall.SIGCONT, "false")
	eventually(t, "the others are done", empty)
}

// A job of PHP's whose child is killed comes again beyond its one try, so that PHP's code can say that it failed.
func TestWorkDoesTheJobsOfPHP(t *testing.T) {
	t.Parallel()
	s := servePHP(t, "laravel", "")
	const child = `echo '{"do":"ready"}' >&3
while read -r line; do
  seq=${line#*\"seq\":\"}; seq=${seq%%\"*}; do=delete
  case $line in *'"attempts":1,'*'"tries":1,'*hang*) sleep 1000;; *hang*) do=failed;; esac
  echo "{\"seq\":\"$seq\",\"do\":\"$do\"}" >&3
done`
	s.do("root", "POST", "default", plainJob, 200, `"accepted":1`)
	s.do("root", "POST", "default", `{"job":"App\\Jobs\\Plain@fire","data":"hang","timeout":1}`, 200, `"accepted":1`)
	_, _, log := workOn(t, s.reloading, "shop default", []string{"SPILLWAY_TOKEN=reader"}, "--backoff", "1ms..1ms", "--", "/bin/sh", "-c", child)
	eventually(t, "the job that hung is dead", func() bool {
		return strings.Contains(s.do("reader", "GET", "default/dead", "", 200, ""), `"reason":"buried"`)
	})
	s.do("reader", "GET", "default", "", 200, `"ready":0,"delayed":0,"leased":0,"pending":0,"dead":1`)
	says := func(what string) {
		eventually(t, "the log says "+what, func() bool {
			text, _ := os.ReadFile(log)
			return strings.Contains(string(text), what)
		})
	}
	says(`"why":"timeout"`)
	out, err := exec.CommandContext(t.Context(), binary, "workers", "restart", "shop", "--admin", "http://"+s.admin).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	says("a restart was asked for") // with the next claim, whose wait it ends
	out, err = exec.CommandContext(t.Context(), binary, "workers", "ls", "shop", "--admin", "http://"+s.admin).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "default ") || !strings.Contains(string(out), "reader") {
		t.Errorf("got %s, %v", out, err)
	}
}
