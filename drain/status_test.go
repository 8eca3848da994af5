package drain

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

func TestStatusFollowsTheSink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		var openError, writeError atomic.Pointer[error]
		closed := fmt.Errorf("nobody listens on port 1")
		openError.Store(&closed)
		r.sink.open = func(context.Context) error {
			clocktest.Take(time.Second)
			if e := openError.Load(); e != nil {
				return *e
			}
			return nil
		}
		r.sink.write = func(context.Context, []*sink.Batch) error {
			clocktest.Take(40 * time.Millisecond)
			if e := writeError.Load(); e != nil {
				return *e
			}
			return nil
		}
		r.start()
		state := func() guard.TargetStatus { return r.d.Status().Targets[0] }
		if s := state(); s.State != guard.Opening || s.Type != "fake" || s.Namespace != "games" || s.LastError != "" || s.P99 != 0 {
			t.Errorf("before the first Open ends: %+v", s)
		}
		clocktest.Pass(1500 * time.Millisecond)
		if s := state(); s.State != guard.Failing || s.LastError != closed.Error() || s.FailingSince.IsZero() || s.Retries < 1 {
			t.Errorf("after a failed Open: %+v", s)
		}
		openError.Store(nil)
		clocktest.Pass(time.Minute)
		for p := range 100 {
			r.store.produce(r.ns, fmt.Sprint("p", p), 100, 0)
		}
		r.drained(time.Minute)
		synctest.Wait() // the last entries are settled before their worker is idle
		s := r.d.Status()
		if got := s.Targets[0]; got.State != guard.Open || got.P50 < 35*time.Millisecond || got.P99 > 45*time.Millisecond || got.WritesPerSecond <= 0 || got.Concurrency != 64 {
			t.Errorf("after 100 Writes of 40 ms: %+v", got)
		}
		if s.BatchFill[7] != 100 || s.Workers != (guard.WorkerStatus{Size: 64}) {
			t.Errorf("batches by entries %v, workers %+v", s.BatchFill, s.Workers)
		}
		down := fmt.Errorf("%s", strings.Repeat("ö", 1000))
		writeError.Store(&down)
		for p := range 2000 {
			r.store.produce(r.ns, fmt.Sprint("p", p), 1, 0)
		}
		clocktest.Pass(30 * time.Second)
		if got := state(); got.State != guard.Tripped || len(got.LastError) > 310 || !utf8.ValidString(got.LastError) || time.Since(got.FailingSince) > 30*time.Second {
			t.Errorf("while all Writes fail: %+v", got)
		}
		if words, at := r.d.LastError("games", "p7"); !strings.HasPrefix(words, "öö") || time.Since(at) > 30*time.Second {
			t.Errorf("last error of a partition: %q at %v", words, at)
		}
		if words, _ := r.d.LastError("other", "p7"); words != "" {
			t.Errorf("last error of another namespace: %q", words)
		}
		writeError.Store(nil)
		r.drained(10 * time.Minute)
		if words, _ := r.d.LastError("games", "p7"); words != "" || state().State != guard.Open {
			t.Errorf("after it recovered: %q, %+v", words, state())
		}
		r.stop()
	})
}

func TestStatusOfACoalescingSinkHasItsFill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Linger = 10 * time.Millisecond })
		r.sink.caps = sink.Caps{MaxBatches: 100, PreferEntries: 100, Linger: 5 * time.Second}
		r.store.produce(r.ns, "p", 25, 0)
		r.start()
		clocktest.Pass(time.Second)
		s := r.d.Status().Targets[0]
		if !s.Coalesces || s.Fill != 0.25 || s.Workers.Busy != 1 {
			t.Errorf("while 25 of 100 entries wait: %+v", s)
		}
		r.drained(time.Minute)
		r.stop()
		if s := r.d.Status().Targets[0]; s.Fill != 0 || s.Workers.Busy != 0 {
			t.Errorf("afterwards: %+v", s)
		}
	})
}
