package control

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/clocktest"
)

// window is a stand-in for the script: one process's view of a shared window.
type window struct {
	left, asked, ends int64
	err               error
}

func (w *window) limiter(count int64, per time.Duration) *Limiter {
	return &Limiter{rate: partition.Rate{Count: count, Per: per}, asking: make(chan struct{}, 1), grant: func(_ context.Context, l *Limiter, need int64) (granted, error) {
		w.asked++
		now := time.Now().UnixMilli()
		if w.err != nil {
			return granted{}, w.err
		}
		if w.ends <= now {
			w.ends, w.left = now+l.rate.Per.Milliseconds(), l.rate.Count
		}
		g := granted{sent: time.Now(), now: now, until: w.ends}
		if slice := max(l.rate.Count/slicesOfWindow, 1); need <= w.left {
			g.n = min((need+slice-1)/slice*slice, w.left)
		}
		w.left -= g.n
		g.left = w.left
		return g, nil
	}}
}

// take takes n and expects the wait.
func take(t *testing.T, l *Limiter, n int64, want time.Duration) Taken {
	t.Helper()
	taken, wait, err := l.Take(context.Background(), n)
	if err != nil || wait != want {
		t.Fatalf("take %d: got wait %v, %v, want %v", n, wait, err, want)
	}
	return taken
}

func TestALimiterAsksRedisOnceASlice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w window
		l := w.limiter(640, time.Minute)
		for range 640 {
			take(t, l, 1, 0)
		}
		if w.asked != 64 {
			t.Errorf("asked %d times, want 64", w.asked)
		}
		take(t, l, 1, time.Minute)
		take(t, l, 1, time.Minute)
		if w.asked != 64 {
			t.Errorf("asked %d times about a window that was used up, want 64", w.asked)
		}
		clocktest.Pass(time.Minute) // of the bubble's clock
		take(t, l, 640, 0)
		if w.asked != 65 {
			t.Errorf("asked %d times, want 65", w.asked)
		}
	})
}

func TestATakeIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w window
		l := w.limiter(100, time.Minute)
		take(t, l, 60, 0)
		take(t, l, 50, time.Minute)
		take(t, l, 40, 0)
		take(t, l, 101, -1)
		take(t, l, 0, 0)
		take(t, nil, 1000, 0)
	})
}

func TestARefundIsOfItsWindowOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w window
		l := w.limiter(10, time.Minute)
		first := take(t, l, 10, 0)
		first.RefundPart(4)
		take(t, l, 4, 0)
		take(t, l, 1, time.Minute)
		first.RefundPart(-1)
		take(t, l, 1, time.Minute)
		clocktest.Pass(time.Minute)
		take(t, l, 10, 0)
		first.Refund()
		take(t, l, 1, time.Minute)
		Taken{}.Refund()
	})
}

func TestAFailedGrantTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w window
		l := w.limiter(640, time.Minute)
		take(t, l, 5, 0) // 5 are left of the slice
		w.err = backend.ErrUnavailable
		if _, _, err := l.Take(context.Background(), 6); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		take(t, l, 5, 0)
		w.err = nil
		take(t, l, 630, 0)
		take(t, l, 1, time.Minute)
	})
}

// Others may have begun the next window before this process noticed that its own ended.
func TestCreditOfAWindowThatEndedIsNotUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w window
		l := w.limiter(640, time.Minute)
		take(t, l, 5, 0)
		w.ends, w.left = w.ends+60_000, 8
		take(t, l, 9, 2*time.Minute) // 5 of the old one do not count
		take(t, l, 8, 0)
		take(t, l, 1, 2*time.Minute)
	})
}

func TestATakeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	var w window
	l := w.limiter(10, time.Minute)
	l.asking <- struct{}{}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := l.Take(ctx, 1); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// What a request of a token with a rate pays while the slice lasts.
func BenchmarkTake(b *testing.B) {
	var w window
	l := w.limiter(partition.MaxRate, time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		if _, wait, err := l.Take(context.Background(), 1); wait != 0 || err != nil {
			b.Fatal(wait, err)
		}
	}
}
