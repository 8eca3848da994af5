package drain

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-io/spillway/drain/sink"
)

func TestBackoffGrowsFromBaseToMax(t *testing.T) {
	t.Parallel()
	const base, limit = 100 * time.Millisecond, 30 * time.Second
	for attempt, want := range map[int]time.Duration{
		0: base, 1: base, 2: 2 * base, 3: 4 * base, 9: 256 * base, 10: limit, 63: limit, 64: limit, 1 << 40: limit,
	} {
		if got := backoff(base, limit, attempt, 1); got != want {
			t.Errorf("attempt %d: ceiling %v, want %v", attempt, got, want)
		}
		if got := backoff(base, limit, attempt, 0); got != 0 {
			t.Errorf("attempt %d: floor %v: full jitter begins at 0", attempt, got)
		}
	}
}

func TestRetryNeverWaitsBeyondTheLifeOfTheBatch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		d := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(-int64(time.Minute), int64(time.Hour)).Draw(t, "d"))
		})
		wait, after, life := d.Draw(rt, "wait"), d.Draw(rt, "after"), d.Draw(rt, "life")
		got := retryIn(wait, after, life)
		switch {
		case got < 0, got > max(0, life):
			rt.Fatalf("%v of a life of %v", got, life)
		case got < min(wait, life), got < min(after, life):
			rt.Fatalf("%v is too soon", got)
		}
	})
}

func TestNoticeFollowsTheSinksPaceWithinBounds(t *testing.T) {
	t.Parallel()
	var p pace
	const timeout, maxAge = 10 * time.Second, 3 * time.Minute
	if got := p.minLife(timeout, maxAge); got != 0 {
		t.Errorf("minLife %v before the first Write", got)
	}
	p.took(time.Second, false)
	if got := p.minLife(timeout, maxAge); got != 2*time.Second {
		t.Errorf("minLife %v at a pace of 1s", got)
	}
	p.cut(3 * time.Second)
	p.cut(time.Second)
	if got := p.get(); got != 3*time.Second {
		t.Errorf("pace %v after a Write was cut off at 3s", got)
	}
	p.cut(time.Hour)
	if got := p.minLife(timeout, maxAge); got != timeout {
		t.Errorf("minLife %v, a Write ends after %v", got, timeout)
	}
	if got := p.minLife(timeout, 8*time.Second); got != 2*time.Second {
		t.Errorf("minLife %v of a max age of 8s: a quarter of it is the most", got)
	}
	for range 40 {
		p.took(10*time.Millisecond, false)
	}
	if got := p.get(); got > 11*time.Millisecond {
		t.Errorf("pace %v after 40 quick Writes", got)
	}
}

func TestBackoffOfANamespaceIsItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.write = func(context.Context, []*sink.Batch) error { return errDown }
		slow := space("slow")
		r.store.spaces[slow.Name] = &fakeSpace{ns: slow, partitions: map[string]*fakePartition{}}
		other := r.fakeSink(slow)
		other.write = r.sink.write
		r.more = []Target{{Namespace: slow, Sink: other, BackoffBase: 20 * time.Second, BackoffMax: 20 * time.Second}}
		r.store.produce(r.ns, "p", 1, 0)
		r.store.produce(slow, "p", 1, 0)
		r.start()
		time.Sleep(2 * time.Minute)
		r.stop()
		if quick, rare := len(r.sink.seen()), len(other.seen()); rare < 5 || rare > 25 || quick < 6 {
			t.Errorf("%d attempts, and %d with 20 s between them at most", quick, rare)
		}
	})
}
