package drain

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-io/spillway/drain/sink"
)

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
