//go:build unix

package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// big is more than a pipe holds.
var big = []byte(strings.Repeat("x", 1<<20))

func shell(script string, args ...string) Command {
	return Command{
		Args:      append([]string{"/bin/sh", "-c", script, "program"}, args...),
		Env:       []string{"PATH=/usr/bin:/bin"},
		Input:     big,
		MaxStdout: 3,
		MaxStderr: 5,
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheBeginningOfTheOutputIsKept(t *testing.T) {
	t.Parallel()
	got, err := shell(`cat; cat /proc/self/environ >&2; exit 3`).Run(t.Context())
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !got.Started || string(got.Stdout) != "xxx" || string(got.Stderr) != "PATH=" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A busy machine may get to the pipe long after the process has ended.
func TestWhatAProcessWroteIsReadHoweverLate(t *testing.T) {
	t.Parallel()
	child, err := shell(`echo done; (setsid yes) & echo late >&2`).Start(false)
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	_ = child.Wait()
	for _, p := range child.outputs() {
		_ = p.file.SetReadDeadline(time.Unix(1, 0))
	}
	out, _ := io.ReadAll(child.Stdout)
	errs, _ := io.ReadAll(child.Stderr)
	if !strings.HasPrefix(string(out), "done\n") || len(out) > pipeSize || string(errs) != "late\n" {
		t.Errorf("got %.20q, %d bytes, and %q", out, len(out), errs)
	}
}

func TestWhatCannotBeRunWasNotStarted(t *testing.T) {
	t.Parallel()
	got, err := Command{Args: []string{"/no/such/program"}}.Run(t.Context())
	if got.Started || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAProgramThatReadsNothingDoesNotHang(t *testing.T) {
	t.Parallel()
	_, err := shell("exit 0").Run(t.Context())
	must(t, err)
	_, err = shell("head -c 1 >/dev/null").Run(t.Context())
	must(t, err)
}

// gone reports whether the process of that number has ended.
func gone(pid string) bool {
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return errors.Is(syscall.Kill(n, 0), syscall.ESRCH) || err == nil && strings.Contains(string(stat), ") Z ")
}

// awaitGone waits for the end of the process whose number is in the file.
func awaitGone(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	pid := strings.TrimSpace(string(text))
	for end := time.Now().Add(10 * time.Second); !gone(pid); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("process %s is still there", pid)
		}
	}
}

func TestTheEndOfTheContextKillsTheWholeGroup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, syscall.Mkfifo(dir+"/ready", 0o600))
	c := shell(`sleep 1000 & echo $! >"$1/child"; trap "" TERM; echo >"$1/ready"; sleep 1000; exit 0`, dir)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx)
		done <- err
	}()
	ready, err := os.Open(dir + "/ready") // when the program has come so far
	must(t, err)
	must(t, ready.Close())
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("got no error")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Run has not returned")
	}
	awaitGone(t, dir+"/child")
}

func TestAChildThatKeepsThePipesIsKilledAndNotWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := shell(`sleep 1000 & echo $! >"$1/child"; exit 0`, dir).Run(t.Context())
	must(t, err)
	awaitGone(t, dir+"/child")
}

func TestAChildInASessionOfItsOwnDoesNotHoldTheEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, syscall.Mkfifo(dir+"/end", 0o600))
	got, _ := shell(`setsid sh -c 'echo $$ >"$1/child"; read x <"$1/end"' x "$1" & while ! test -s "$1/child"; do :; done; echo no >&2; exit 65`, dir).
		Run(t.Context())
	if string(got.Stderr) != "no\n" {
		t.Errorf("got %q", got.Stderr)
	}
	end, err := os.OpenFile(dir+"/end", os.O_WRONLY, 0)
	must(t, err)
	must(t, end.Close())
	awaitGone(t, dir+"/child")
}

// eof waits for the end of what a child writes.
func eof(t *testing.T, f io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(f)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return string(text)
}

func TestAStartedChildHasItsPipesAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := shell(`read line; echo "$line" >&3; pwd; ls /proc/self/fd >&2; cat /proc/self/stat | cut -d' ' -f19`)
	c.Dir, c.Nice = dir, 5
	child, err := c.Start(true)
	must(t, err)
	defer child.Close()
	if child.Memory() <= 0 {
		t.Error("it takes no memory")
	}
	_, err = child.Stdin.WriteString("hello\nmore\n")
	must(t, err)
	out, errs, extra := eof(t, child.Stdout), eof(t, child.Stderr), eof(t, child.Extra)
	must(t, child.Wait())
	// 4 is the folder that ls reads.
	if extra != "hello\n" || out != dir+"\n5\n" || errs != "0\n1\n2\n3\n4\n" {
		t.Errorf("got %q, %q, %q", out, errs, extra)
	}
	child.Kill() // of nobody else
}

func TestASignalGoesToTheProcessOrToItsGroup(t *testing.T) {
	t.Parallel()
	const script = `trap 'echo parent; wait; exit 3' TERM; sh -c 'trap "echo child; exit" TERM; echo up; while :; do sleep 0.01; done' & wait; wait; exit 4`
	for group, want := range map[bool]string{false: "parent\n", true: "child\nparent\n"} {
		child, err := shell(script).Start(false)
		must(t, err)
		defer child.Close()
		up := make([]byte, 3)
		_, err = io.ReadFull(child.Stdout, up)
		must(t, err)
		if group {
			child.SignalGroup(syscall.SIGTERM)
		} else {
			child.Signal(syscall.SIGTERM)
		}
		lines := bufio.NewReader(child.Stdout)
		var got []string
		for range strings.Count(want, "\n") {
			line, err := lines.ReadString('\n')
			must(t, err)
			got = append(got, line)
		}
		slices.Sort(got)
		if strings.Join(got, "") != want {
			t.Errorf("group %t: got %q, want %q", group, got, want)
		}
		child.Kill()
		_ = child.Wait()
	}
}

func TestAChildThatCannotRunAsWantedIsNotLeftBehind(t *testing.T) {
	t.Parallel()
	c := shell("exit 0")
	c.Dir = "/no/such/folder"
	if _, err := c.Start(true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestTheEnvironmentOfAChildIsAList(t *testing.T) {
	t.Parallel()
	environ := []string{"PATH=/bin", "HOME=/root", "APP_ENV=test", "APP_KEY=k", "SPILLWAY_TOKEN=s", "AWS_SECRET=x"}
	got, err := Environ(environ, "APP_*", "SP*", "OWN=1=2")
	if want := []string{"OWN=1=2", "PATH=/bin", "HOME=/root", "APP_ENV=test", "APP_KEY=k"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	for _, wrong := range []string{"", "=x", "[", "SPILLWAY_TOKEN", "SPILLWAY_X=1"} {
		if _, err := Environ(environ, wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

func TestWhatAChildHasNotReadIsKnown(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{`trap "exit 0" TERM; echo up; while :; do sleep 0.01; done`: 6, "echo up; read x": 0} {
		child, err := shell(script).Start(false)
		must(t, err)
		_, err = io.ReadFull(child.Stdout, make([]byte, 3))
		must(t, err)
		_, err = child.Stdin.WriteString("hello\n")
		must(t, err)
		if want > 0 {
			child.Signal(syscall.SIGTERM)
		}
		if err := child.Wait(); err != nil || child.Unread != want {
			t.Errorf("%s: %d bytes are unread, %v; want %d", script, child.Unread, err, want)
		}
		child.Close()
	}
}

func TestADueChildAsksForItsTurnSoonAfterARestart(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	p := NewPool(ctx, PoolConfig{})
	m := &Member{Slot: &Slot{pool: p}, generation: p.generation.Load()}
	before := m.DueEvery()
	p.Restart()
	if after := m.DueEvery(); before != time.Second || after >= before/10 {
		t.Errorf("it asks each %v, then each %v", before, after)
	}
	stop()
	p.Wait()
}
