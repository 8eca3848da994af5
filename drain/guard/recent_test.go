package guard

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/partition/clocktest"
)

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
		clocktest.Pass(30 * time.Second)
		w.took(time.Minute)
		if p50, _, perSecond := w.figures(); !near(p50, time.Millisecond) || perSecond != 0.1 {
			t.Errorf("p50 %v, %v a second", p50, perSecond)
		}
		clocktest.Pass(45 * time.Second)
		if p50, _, _ := w.figures(); !near(p50, time.Minute) {
			t.Errorf("p50 %v", p50)
		}
		clocktest.Pass(time.Hour)
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

func TestKindsOfDeadLettersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		l := letterLog{log: zap.New(core)}
		for i := range 10_000 {
			l.add("p", zap.Int64("seq", int64(i)), errors.New(strings.Repeat("x", 1+i%299)))
		}
		if n := logs.Len(); n != maxLetterKinds+1 || len(l.kinds) != maxLetterKinds+1 {
			t.Errorf("%d lines, %d kinds", n, len(l.kinds))
		}
	})
}

// Words with an id in hexadecimal are a kind each. Those that came twice within a minute
// must not stand in the way of later ones.
func TestKindsOfDeadLettersThatEndedMakeRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		l := letterLog{log: zap.New(core)}
		for i := range 2 * maxLetterKinds {
			l.add("p", zap.Int64("seq", int64(i)), errors.New(strings.Repeat("x", 1+i/2)))
		}
		clocktest.Pass(letterPause)
		for i := range maxLetterKinds - 1 { // the shared kind takes one place
			l.add("p", zap.Int64("seq", int64(i)), errors.New(strings.Repeat("y", 1+i)))
		}
		l.add("p", zap.Int64("seq", 0), errors.New("one kind too many"))
		var entries int64
		for _, line := range logs.All() {
			entries += line.ContextMap()["entries"].(int64)
		}
		if n := logs.Len(); n != 2*maxLetterKinds || entries != 3*maxLetterKinds {
			t.Errorf("%d lines that name %d entries, want %d and %d", n, entries, 2*maxLetterKinds, 3*maxLetterKinds)
		}
	})
}
