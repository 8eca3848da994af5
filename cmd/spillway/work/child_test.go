//go:build linux

package work

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	spillway "github.com/spillway-io/spillway/ingest/client"
)

// runChild is what the children of the tests do. Of the mode lines, a payload says what becomes of
// its job: {"do","delay"} as an answer, or {"act"}.
func runChild(behaviour string) {
	out := os.NewFile(3, "answers")
	switch behaviour {
	case "each":
		each()
	case "silent":
		time.Sleep(time.Hour)
	case "crash":
		os.Exit(3)
	case "mute":
		_ = out.Close()
		time.Sleep(time.Hour)
	case "self":
		fmt.Println("up", os.Getpid())
		time.Sleep(time.Hour)
	}
	if behaviour == "deaf" {
		_ = os.Stdin.Close()
		fmt.Fprintln(out, `{"do":"ready"}`)
		time.Sleep(time.Hour)
	}
	fmt.Fprintln(out, `{"do":"ready"}`)
	if behaviour == "overread" {
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(7)
	}
	in := bufio.NewReader(os.Stdin)
	for grown := false; ; {
		text, err := in.ReadString('\n')
		if err != nil {
			return
		}
		var l struct {
			Seq, Payload string
		}
		_ = json.Unmarshal([]byte(text), &l)
		var p struct {
			Do, Act, File string
			Delay         *float64
		}
		_ = json.Unmarshal([]byte(l.Payload), &p)
		if p.Do == "" {
			p.Do = "delete"
		}
		answer := func(seq, do string) {
			a, _ := json.Marshal(map[string]any{"seq": seq, "do": do, "delay": p.Delay, "error": nil})
			fmt.Fprintf(out, "%s\n", a)
		}
		switch p.Act {
		case "die":
			os.Exit(7)
		case "answer and die":
			answer(l.Seq, p.Do)
			os.Exit(7)
		case "hang":
			time.Sleep(time.Hour)
		case "stop":
			// The signal may reach another thread first, and this one would answer meanwhile.
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			time.Sleep(time.Hour)
		case "bomb":
			bomb(p.File)
		case "leave":
			leave(p.File)
		case "mute":
			_ = out.Close()
			time.Sleep(time.Hour)
		case "noise":
			fmt.Fprintln(out, "PHP Warning: nonsense")
			fmt.Fprintln(out, `{"do":"reboot"}`)
			fmt.Fprintln(out, `[1,2`)
			fmt.Fprintln(out, strings.Repeat("x", 10<<20))
			fmt.Fprintln(os.Stdout, strings.Repeat("y", 10<<20))
			answer("other:1", "failed")
			answer(l.Seq, p.Do)
			answer(l.Seq, "failed")
		case "grow":
			// Not of the heap, of which the race detector takes more.
			// Once, for it may wait for its turn to be replaced.
			if !grown {
				_, _ = syscall.Mmap(-1, 0, 128<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_POPULATE)
				grown = true
			}
			if p.Do == "hang" {
				time.Sleep(time.Hour)
			}
			answer(l.Seq, p.Do)
		case "tell":
			fmt.Fprintln(out, `{"do":"log","level":"fatal","message":"I work"}`)
			fmt.Fprintln(out, `{"do":"event","name":"mine"}`)
			fmt.Println("on stdout")
			write(p.File, strings.Join(os.Environ(), "\n")+"\n"+strings.Join(os.Args, " ")+"\n"+text)
		}
		if p.Act != "noise" && p.Act != "grow" {
			answer(l.Seq, p.Do)
		}
	}
}

// write makes a file at once.
func write(path, text string) {
	_ = os.WriteFile(path+".new", []byte(text), 0o600)
	_ = os.Rename(path+".new", path)
}

// bomb starts more and more processes that ignore signals.
func bomb(file string) {
	const script = `trap "" TERM HUP INT; for i in 1 2 3 4 5 6 7 8 9 10; do (trap "" TERM; for j in 1 2 3 4 5; do sleep 1000 & echo $! >>"$0"; done; sleep 1000) & echo $! >>"$0"; done; sleep 1000`
	_ = exec.Command("/bin/sh", "-c", script, file).Run()
}

// leave starts a process of another session that keeps all pipes, and ends.
func leave(file string) {
	cmd := exec.Command("/bin/sh", "-c", `read x <"$0"`, file)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{os.NewFile(3, "answers")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	_ = cmd.Start()
	os.Exit(0)
}

// each does a job of the mode each: the payload is the exit code, or what to do.
func each() {
	text, _ := io.ReadAll(os.Stdin)
	var env []string
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "JOB_") && !strings.HasPrefix(v, "JOB_DEADLINE=") {
			env = append(env, v)
		}
	}
	fmt.Println(strings.Join(env, " "))
	var code int
	if _, err := fmt.Sscan(string(text), &code); err != nil {
		time.Sleep(time.Hour)
	}
	os.Exit(code)
}

// A desk with 4 idle children, whose jobs take so long.
func seated(took time.Duration) *desk {
	d := newDesk()
	d.seat(4)
	d.idle = 4
	for range 200 {
		d.learn(took)
	}
	return d
}

func TestADeskAsksForMoreThanItsChildrenTakeOnlyWhileJobsAreShort(t *testing.T) {
	t.Parallel()
	if n := seated(time.Second).want(); n != 4 {
		t.Errorf("with slow jobs it wants %d", n)
	}
	last := seated(time.Millisecond)
	if last.last = true; last.want() != 4 {
		t.Error("with jobs at their last try it wants more than 4")
	}
	paused := seated(time.Millisecond)
	if paused.paused = true; paused.want() != 0 {
		t.Error("while it is paused it wants jobs")
	}
	quick := seated(time.Millisecond)
	if n := quick.want(); n < 40 || n > maxAhead+4 {
		t.Errorf("with quick jobs it wants %d", n)
	}
	quick.idle = 0
	if quick.promised -= 10; quick.want() != 0 {
		t.Error("with few gone it wants more")
	}
	if quick.promised = 4; quick.want() < 20 {
		t.Error("with most gone it does not want more")
	}
}

func TestAJobThatWaitsForAChildForTooLongGoesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		d.seat(1)
		began := time.Now()
		if err := d.handle(t.Context(), spillway.Job{ID: "a"}); err != spillway.ErrNotBegun || time.Since(began) != staleAfter {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
		go func() {
			task := d.next(t.Context(), time.Second, nil)
			task.done <- errors.New("no")
		}()
		if err := d.handle(t.Context(), spillway.Job{ID: "a"}); err == nil || err.Error() != "no" {
			t.Errorf("got %v", err)
		}
		d.paused = true
		go func() {
			if task := d.next(t.Context(), time.Second, nil); task != nil {
				t.Error("a job begins while the worker is paused")
			}
		}()
		if err := d.handle(t.Context(), spillway.Job{ID: "a"}); err != spillway.ErrNotBegun {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		time.Sleep(time.Second)
	})
}

func TestPlacesWaitUntilThereIsOne(t *testing.T) {
	t.Parallel()
	d := newDesk()
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan int)
	go func() { got <- d.places(ctx, 0); got <- d.places(ctx, 1); got <- d.places(ctx, 0) }()
	d.note(func() { d.seated, d.idle = 1, 1 })
	if a, b := <-got, <-got; a != 1 || b != 1 {
		t.Errorf("got %d, then %d", a, b)
	}
	cancel()
	if n := <-got; n != 0 {
		t.Errorf("got %d when it ends", n)
	}
}
