package stdout

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errPipe = errors.New("broken pipe")

// pipe is a writer that can be stalled and made to fail after some bytes.
type pipe struct {
	mu     sync.Mutex
	buf    bytes.Buffer
	writes int
	stall  chan struct{}
	fails  bool
	room   int // bytes taken of a write that fails
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if stall := p.stall; stall != nil {
		p.mu.Unlock()
		<-stall
		p.mu.Lock()
	}
	p.writes++
	if p.fails {
		n := min(p.room, len(b))
		p.buf.Write(b[:n])
		return n, errPipe
	}
	return p.buf.Write(b)
}

func (p *pipe) set(fails bool, room int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails, p.room = fails, room
}

func (p *pipe) failing(name string, room int) sinktest.Fault {
	return sinktest.Fault{Name: name, Start: func() func() {
		p.set(true, room)
		return func() { p.set(false, 0) }
	}}
}

func (p *pipe) stalled() func() {
	c := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stall = c
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stall = nil
		close(c)
	}
}

// records skips the one line a failed write may have left torn.
func (p *pipe) records() ([]sinktest.Record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var whole []string
	for line := range strings.Lines(p.buf.String()) {
		if strings.HasSuffix(line, "}\n") {
			whole = append(whole, line)
		}
	}
	return sinktest.ParseLines([]byte(strings.Join(whole, "")))
}

func TestConforms(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{New: func(testing.TB) sinktest.Fixture {
		p := &pipe{}
		return sinktest.Fixture{
			Sink: NewWriter(p), Received: p.records, Stall: p.stalled,
			Faults: []sinktest.Fault{p.failing("closed", 0), p.failing("short", 100), p.failing("short by a line's end", 1<<20)},
		}
	}})
}

func batch(payloads ...string) *sink.Batch { return sinktest.Batch("p", 1, payloads...) }

func TestABatchIsOneWrite(t *testing.T) {
	t.Parallel()
	p := &pipe{}
	b := batch("1", "2", "3")
	if err := NewWriter(p).Write(t.Context(), []*sink.Batch{b}); err != nil {
		t.Fatal(err)
	}
	if want := string(sink.AppendBatch(nil, b)); p.buf.String() != want || p.writes != 1 {
		t.Errorf("got %q in %d writes", p.buf.String(), p.writes)
	}
}

func TestHalfALineDoesNotSwallowTheNext(t *testing.T) {
	t.Parallel()
	p := &pipe{}
	s := NewWriter(p)
	b := batch("1")
	line := string(sink.AppendBatch(nil, b))
	write := func() error { return s.Write(t.Context(), []*sink.Batch{b}) }
	p.set(true, 10)
	if err := write(); !errors.Is(err, errPipe) {
		t.Fatalf("got %v", err)
	}
	p.set(true, 0) // not even the newline passes
	if err := write(); !errors.Is(err, errPipe) {
		t.Fatalf("got %v", err)
	}
	p.set(false, 0)
	for range 2 {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := p.buf.String(), line[:10]+"\n"+line+line; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

type short struct{ bytes.Buffer }

func (s *short) Write(b []byte) (int, error) { return s.Buffer.Write(b[:len(b)/2]) }

func TestAWriterThatTakesLessWithoutAnErrorFails(t *testing.T) {
	t.Parallel()
	err := NewWriter(&short{}).Write(t.Context(), []*sink.Batch{batch("1")})
	if err == nil || err.Error() != "write stdout: short write" {
		t.Errorf("got %v", err)
	}
}

func TestCloseWaitsForAWriteThatOutlivedItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pipe{}
		release := p.stalled()
		s := NewWriter(p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Write(ctx, []*sink.Batch{batch("1")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close while a write hangs: got %v", err)
		}
		time.AfterFunc(time.Minute, release)
		if err := s.Close(t.Context()); err != nil || p.writes != 1 {
			t.Errorf("Close: got %v after %d writes", err, p.writes)
		}
	})
}

func TestURLsWithMoreThanASchemeAreErrors(t *testing.T) {
	t.Parallel()
	registry := sink.Registry{"stdout": New}
	if _, err := registry.New("stdout:"); err != nil {
		t.Error(err)
	}
	for raw, want := range map[string]string{
		"stdout:x":      `sink stdout:…: takes no path: write "stdout:", or "file:///path.ndjson" for a file`,
		"stdout:///x":   `sink stdout:…: takes no path: write "stdout:", or "file:///path.ndjson" for a file`,
		"stdout:?max=1": `sink stdout:?…: unknown option "max": it takes none`,
	} {
		if _, err := registry.New(raw); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", raw, err, want)
		}
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
