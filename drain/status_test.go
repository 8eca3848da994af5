package drain

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

func TestStatusFollowsTheSink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		var openError, writeError atomic.Pointer[error]
		closed := fmt.Errorf("nobody listens on port 1")
		openError.Store(&closed)
		r.sink.open = func(context.Context) error {
			time.Sleep(time.Second)
			if e := openError.Load(); e != nil {
				return *e
			}
			return nil
		}
		r.sink.write = func(context.Context, []*sink.Batch) error {
			time.Sleep(40 * time.Millisecond)
			if e := writeError.Load(); e != nil {
				return *e
			}
			return nil
		}
		r.start()
		state := func() TargetStatus { return r.d.Status().Targets[0] }
		if s := state(); s.State != SinkOpening || s.Type != "fake" || s.Namespace != "games" || s.LastError != "" || s.P99 != 0 {
			t.Errorf("before the first Open ends: %+v", s)
		}
		time.Sleep(1500 * time.Millisecond)
		if s := state(); s.State != SinkFailing || s.LastError != closed.Error() || s.FailingSince.IsZero() || s.Retries < 1 {
			t.Errorf("after a failed Open: %+v", s)
		}
		openError.Store(nil)
		time.Sleep(time.Minute)
		for p := range 100 {
			r.store.produce(r.ns, fmt.Sprint("p", p), 100, 0)
		}
		r.drained(time.Minute)
		s := r.d.Status()
		if got := s.Targets[0]; got.State != SinkOpen || got.P50 < 35*time.Millisecond || got.P99 > 45*time.Millisecond || got.WritesPerSecond <= 0 || got.Concurrency != 64 {
			t.Errorf("after 100 Writes of 40 ms: %+v", got)
		}
		if s.BatchFill[7] != 100 || s.Workers != (WorkerStatus{Size: 64}) {
			t.Errorf("batches by entries %v, workers %+v", s.BatchFill, s.Workers)
		}
		down := fmt.Errorf("%s", strings.Repeat("ö", 1000))
		writeError.Store(&down)
		for p := range 2000 {
			r.store.produce(r.ns, fmt.Sprint("p", p), 1, 0)
		}
		time.Sleep(30 * time.Second)
		if got := state(); got.State != SinkTripped || len(got.LastError) > 310 || !utf8.ValidString(got.LastError) || time.Since(got.FailingSince) > 30*time.Second {
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
		if words, _ := r.d.LastError("games", "p7"); words != "" || state().State != SinkOpen {
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
		time.Sleep(time.Second)
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

func TestRecentWritesForgetsAfterAMinute(t *testing.T) {
	bubble(t, func(*testing.T) {
		w := newRecentWrites()
		for range 99 {
			w.took(time.Millisecond)
		}
		w.took(time.Second)
		near := func(got, want time.Duration) bool { return math.Abs(float64(got-want)) <= float64(want)/8 }
		if p50, p99, _ := w.figures(); !near(p50, time.Millisecond) || !near(p99, time.Millisecond) {
			t.Errorf("p50 %v p99 %v", p50, p99)
		}
		w.took(time.Second)
		if _, p99, perSecond := w.figures(); !near(p99, time.Second) || perSecond != 101 {
			t.Errorf("p99 %v, %v a second", p99, perSecond)
		}
		time.Sleep(30 * time.Second)
		w.took(time.Minute)
		if p50, _, perSecond := w.figures(); !near(p50, time.Millisecond) || perSecond != 0.1 {
			t.Errorf("p50 %v, %v a second", p50, perSecond)
		}
		time.Sleep(45 * time.Second)
		if p50, _, _ := w.figures(); !near(p50, time.Minute) {
			t.Errorf("p50 %v", p50)
		}
		time.Sleep(time.Hour)
		if p50, p99, perSecond := w.figures(); p50 != 0 || p99 != 0 || perSecond != 0 {
			t.Errorf("after an hour: %v %v %v", p50, p99, perSecond)
		}
	})
}

func TestBucketsHoldEachDurationWithinAnEighth(t *testing.T) {
	t.Parallel()
	for d := 100 * time.Microsecond; d < 15*time.Minute; d += d/7 + 1 {
		got := bucketMiddle(bucketOf(d))
		if off := math.Abs(float64(got-d)) / float64(d); off > 0.13 {
			t.Errorf("%v is shown as %v", d, got)
		}
	}
	if bucketOf(-time.Second) != 0 || bucketOf(100*time.Hour) != recentBuckets-1 {
		t.Error("a duration out of range")
	}
}

func BenchmarkRecentWrites(b *testing.B) {
	w := newRecentWrites()
	b.ReportAllocs()
	for b.Loop() {
		w.took(3 * time.Millisecond)
	}
}
