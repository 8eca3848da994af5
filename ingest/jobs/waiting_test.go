package jobs

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

const pollText = "POST /v1/mail/q/claim?wait=10m HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // most of them wait for Redis, or for a time
	os.Exit(m.Run())
}

// eventually waits until another goroutine makes a condition true.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	redistest.Until(t, 20*time.Second, what, holds)
}

// waiting is how many polls a wake of any of their queues would reach.
func (p *port) waiting() (n int) {
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	for poll := range p.engine.polls {
		if poll.listed && poll.unheard == 0 {
			n++
		}
	}
	return n
}

func (p *port) polls() int {
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	return len(p.engine.polls)
}

func TestWorkersAreBoundedThoughTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	var w workers
	for i := range maxWorkers {
		w.note("shop", &Worker{Name: fmt.Sprint("w", i), SeenMS: 2_000})
	}
	for i := range 3 {
		w.note("shop", &Worker{Name: fmt.Sprint("late", i), SeenMS: 1_000})
	}
	if n := len(w.of["shop"]); n != maxWorkers || w.of["shop"]["late2"] == nil {
		t.Errorf("%d workers, want %d with the last", n, maxWorkers)
	}
}
