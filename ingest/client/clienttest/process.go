package clienttest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// Process opens an SDK in another language: a program that does what lines of JSON say, by
// PROTOCOL.md.
func Process(name string, args ...string) Open {
	start := Program(name, args...)
	return func(t testing.TB, url string, o Options) SDK {
		t.Helper()
		in, out := start(t)
		return Drive(t, in, out, url, o)
	}
}

// A Log holds what several goroutines wrote.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to it.
func (l *Log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

// Said is all of it.
func (l *Log) Said() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// spoken is the standard input of a program, and what it wrote to standard error.
type spoken struct {
	io.WriteCloser
	log *Log
}

func (s spoken) Said() string { return s.log.Said() }

// Program starts such a program. It ends with the test.
func Program(name string, args ...string) Start {
	return func(t testing.TB) (io.Writer, io.Reader) {
		t.Helper()
		cmd := exec.Command(name, args...)
		pipe, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in := spoken{pipe, new(Log)}
		cmd.Stderr = in.log
		cmd.WaitDelay = 5 * time.Second // for children of a driver, which have its stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if t.Failed() {
				t.Log(in.Said())
			}
		})
		return in, out
	}
}

// Drive opens an SDK by the same commands, however they travel: each Write to in is one line.
func Drive(t testing.TB, in io.Writer, out io.Reader, url string, o Options) SDK {
	t.Helper()
	p := &process{t: t, driver: lines{in: in, out: bufio.NewReader(out)}}
	p.ask(command{Op: "open", URL: url, Options: settings(o)})
	return p
}

func settings(o Options) map[string]any {
	all := map[string]any{
		"token": o.Token, "batch": o.Batch, "queue": o.Queue, "linger": o.Linger, "max_age": o.MaxAge, "timeout": o.Timeout, "attempts": o.Attempts,
		"backoff_base": o.BackoffBase, "backoff_max": o.BackoffMax, "break_after": o.BreakAfter, "probe_every": o.ProbeEvery,
		"key_window": o.KeyWindow, "throw_hooks": o.ThrowHooks,
	}
	set := map[string]any{}
	for name, value := range all {
		switch v := value.(type) {
		case time.Duration:
			if v != 0 {
				set[name] = v.Milliseconds()
			}
		case int:
			if v != 0 {
				set[name] = v
			}
		case bool:
			if v {
				set[name] = v
			}
		case string:
			if v != "" {
				set[name] = v
			}
		}
	}
	return set
}

type command struct {
	Op        string         `json:"op"`
	URL       string         `json:"url,omitempty"`
	Options   map[string]any `json:"options,omitempty"`
	Partition string         `json:"partition,omitempty"`
	Payload   string         `json:"payload,omitempty"`
	At        int64          `json:"at,omitempty"`
	Timeout   int64          `json:"timeout,omitempty"`
}

type reply struct {
	OK       bool             `json:"ok"`
	Reported int64            `json:"reported"`
	Acked    int64            `json:"acked"`
	Pending  int64            `json:"pending"`
	Dropped  map[string]int64 `json:"dropped"`
}

// lines talks to a driver: a command a line, and an answer a line.
type lines struct {
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
}

// say sends a command that has no answer.
func (l *lines) say(command any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write(command)
}

// said is what the driver wrote to standard error.
func (l *lines) said() string {
	if in, is := l.in.(interface{ Said() string }); is {
		return in.Said()
	}
	return ""
}

// ask sends a command, and reads its answer.
func (l *lines) ask(command, answer any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.write(command); err != nil {
		return err
	}
	line, err := l.out.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, answer)
}

func (l *lines) write(command any) error {
	line, err := json.Marshal(command)
	if err == nil {
		_, err = l.in.Write(append(line, '\n'))
	}
	return err
}

type process struct {
	t      testing.TB
	driver lines
}

func (p *process) ask(c command) (r reply) {
	if err := p.driver.ask(c, &r); err != nil {
		p.t.Errorf("%s: %v", c.Op, err)
	}
	return r
}

func (p *process) Report(partition, payload string) { p.ReportAt(partition, payload, time.Time{}) }

func (p *process) ReportAt(partition, payload string, at time.Time) {
	c := command{
		Op:        "report",
		Partition: partition,
		Payload:   base64.StdEncoding.EncodeToString([]byte(payload)),
	}
	if !at.IsZero() {
		c.At = at.UnixMilli()
	}
	if err := p.driver.say(c); err != nil {
		p.t.Errorf("%s: %v", c.Op, err)
	}
}

func (p *process) Said() string { return p.driver.said() }

var errLate = errors.New("not in time")

func (p *process) Flush(timeout time.Duration) error { return p.end("flush", timeout) }
func (p *process) Close(timeout time.Duration) error { return p.end("close", timeout) }

func (p *process) end(op string, timeout time.Duration) error {
	if !p.ask(command{Op: op, Timeout: timeout.Milliseconds()}).OK {
		return errLate
	}
	return nil
}

func (p *process) Counts() Counts {
	r := p.ask(command{Op: "counts"})
	return Counts{r.Reported, r.Acked, r.Pending, r.Dropped}
}
