//go:build php

package php

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

// patience is how long a child may be silent: a loaded machine is slow.
const patience = time.Minute

// line is a job as a child gets it.
type line struct {
	V        int     `json:"v"`
	Seq      string  `json:"seq"`
	Queue    string  `json:"queue"`
	Attempts int     `json:"attempts"`
	Tries    int     `json:"tries"`
	Backoff  float64 `json:"backoff"` // s
	Timeout  float64 `json:"timeout"` // s
	Payload  string  `json:"payload"`
}

// answer is what a child says of a job.
type answer struct {
	Seq   string  `json:"seq"`
	Do    string  `json:"do"`
	Delay int     `json:"delay"` // s
	Error *string `json:"error"`
}

func (a answer) error() string {
	if a.Error == nil {
		return ""
	}
	return *a.Error
}

// child is one that is ready.
type child struct {
	p       *project
	cmd     *exec.Cmd
	in      io.WriteCloser
	read    *os.File // descriptor 3
	answers *bufio.Reader
	out     bytes.Buffer // to be read when it has ended
	tries   int          // of a payload that names none
	backoff float64      // s
}

// start starts the project's child for jobs with so many tries.
func (p *project) start(t testing.TB, tries int) *child {
	t.Helper()
	c := &child{p: p, cmd: p.php(t, p.child...), tries: tries, backoff: 3}
	read, write, err := os.Pipe()
	must(t, err)
	c.in, err = c.cmd.StdinPipe()
	must(t, err)
	c.cmd.ExtraFiles, c.cmd.Stdout, c.cmd.Stderr = []*os.File{write}, &c.out, &c.out
	must(t, c.cmd.Start())
	_ = write.Close()
	c.read, c.answers = read, bufio.NewReader(read)
	t.Cleanup(func() { _ = read.Close() })
	must(t, read.SetReadDeadline(time.Now().Add(patience)))
	if ready, err := c.answers.ReadString('\n'); ready != `{"do":"ready"}`+"\n" {
		_ = c.cmd.Process.Kill()
		t.Fatalf("the child says %q, %v, then ends with %v\n%s", ready, err, c.cmd.Wait(), &c.out)
	}
	return c
}

// send writes a delivery.
func (c *child) send(t testing.TB, d delivery) {
	t.Helper()
	text, err := json.Marshal(line{1, d.seq, c.p.queue, d.attempt, c.tries, c.backoff, 60, d.payload})
	must(t, err)
	_, err = c.in.Write(append(text, '\n'))
	must(t, err)
}

// run sends a delivery and reads what becomes of it. A child that dies answers nothing.
func (c *child) run(t testing.TB, d delivery) answer {
	t.Helper()
	c.send(t, d)
	return c.answer(t, d.seq)
}

// answer reads the answer to a line.
func (c *child) answer(t testing.TB, seq string) answer {
	t.Helper()
	must(t, c.read.SetReadDeadline(time.Now().Add(patience)))
	text, err := c.answers.ReadBytes('\n')
	if err != nil {
		_ = c.cmd.Process.Kill() // where it hangs
		t.Fatalf("no answer: %v, then the child ends with %v\n%s", err, c.cmd.Wait(), &c.out)
	}
	if len(text) > 64<<10 {
		t.Fatalf("an answer has %d bytes", len(text))
	}
	var a answer
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&a); err != nil || a.Seq != seq {
		t.Fatalf("the answer to %s is %s: %v", seq, text, err)
	}
	return a
}

// next claims a payload, runs and settles it.
func (c *child) next(t testing.TB) answer {
	t.Helper()
	d := c.p.claim(t)
	a := c.run(t, d)
	c.p.settle(t, d, a)
	return a
}

// end closes the child's input and returns all that it printed.
func (c *child) end(t testing.TB) string {
	t.Helper()
	must(t, c.in.Close())
	if rest, err := io.ReadAll(c.answers); err != nil || len(rest) > 0 {
		t.Errorf("after its last answer the child says %q, %v", rest, err)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("at the end of its input the child ends with %v\n%s", err, &c.out)
	}
	return c.out.String()
}

// dies sends a delivery that the child does not survive, and returns its exit code.
func (c *child) dies(t testing.TB, d delivery) int {
	t.Helper()
	c.send(t, d)
	if rest, err := io.ReadAll(c.answers); err != nil || len(rest) > 0 {
		t.Errorf("a child that dies in a job says %q, %v", rest, err)
	}
	_ = c.cmd.Wait() // its exit code tells
	return c.cmd.ProcessState.ExitCode()
}

// The service over the queue of an application, and spillway work with four of its children: what the
// library pushed runs once, and what throws comes again and dies with failed().
func TestWorkRunsTheJobsOfAnApplication(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		data := p.serve(t)
		const plain = 200
		for range plain / 50 {
			p.push(t, pushed{Class: "Note", Data: map[string]any{"acts": []string{"delete"}}, Count: 50})
		}
		work := run(t, binary, append([]string{"work", "shop", p.queue, "--server", "http://" + data, "--children", "4", "--tries", "2",
			"--backoff", "1ms..5ms", "--dir", p.dir, "--env", "LIBRARY", "--env", "SEEN", "--env", "REDIS_PORT", "--", "php"}, p.child...)...)
		work.env = p.env
		must(t, work.start())
		empty := func() bool {
			c := context.Background()
			return p.redis.Exists(c, p.key, p.key+":delayed", p.key+":reserved").Val() == 0
		}
		redistest.Until(t, time.Minute, "the jobs are done", empty)
		if n := p.count(t, ran); n != plain {
			t.Errorf("%d jobs ran, of %d\n%s", n, plain, work.out())
		}
		p.push(t, note("throw:no"))
		redistest.Until(t, time.Minute, "the one that throws is dead", func() bool {
			return empty() && p.redis.ZCard(context.Background(), "sw:php:"+p.key+":dead").Val() == 1
		})
		if n := p.count(t, failed); n != 1 {
			t.Errorf("failed() ran %d times\n%s", n, work.out())
		}
		must(t, work.cmd.Process.Signal(syscall.SIGTERM))
		if err := work.wait(); err != nil {
			t.Errorf("work ended with %v\n%s", err, work.out())
		}
		if t.Failed() {
			t.Log(work.out())
		}
	}, think3, think2, laravel)
}
