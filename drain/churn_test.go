package drain

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

// The same where one Write has all of them.
func TestHealthyPartitionsAreServedAmongFailingOnesAlsoWhenAllAreNewAndCoalesced(t *testing.T) {
	for how, bad := range map[string]func(context.Context, []*sink.Batch) error{
		"fails": func(context.Context, []*sink.Batch) error { return errDown },
		"hangs": hang,
	} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newGroupRig(t)
				r.sink.caps.MaxInFlight = 0
				r.sink.write = func(ctx context.Context, batches []*sink.Batch) error {
					clocktest.Take(10 * time.Millisecond)
					if startsWith(batches, "bad") {
						return bad(ctx, batches)
					}
					return nil
				}
				r.start()
				const seconds, healthy = 30, 100
				for second := range seconds {
					for p := range 5 {
						r.store.produce(r.ns, fmt.Sprintf("bad%d.%d", second, p), 1, 0)
					}
					for p := range healthy {
						r.store.produce(r.ns, fmt.Sprintf("ok%d.%d", second, p), 1, 0)
					}
					clocktest.Pass(time.Second)
				}
				clocktest.Pass(time.Minute)
				r.stop()
				if l := r.store.ledger(r.ns); l.Delivered != seconds*healthy {
					t.Errorf("%d of %d healthy partitions were delivered", l.Delivered, seconds*healthy)
				}
			})
		})
	}
}

// Each name is used once: nothing that was learned of a partition helps with the
// next one.
func TestHealthyPartitionsAreServedAmongFailingOnesAlsoWhenAllAreNew(t *testing.T) {
	for _, healthy := range []int{10, 5} {
		t.Run(fmt.Sprintf("%d healthy and 100 failing a second", healthy), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, func(p *partition.Policy) { p.MaxAge = 15 * time.Second })
				r.sink.write = func(_ context.Context, b []*sink.Batch) error {
					clocktest.Take(10 * time.Millisecond)
					if strings.HasPrefix(b[0].Partition, "bad") {
						return errDown
					}
					return nil
				}
				r.start()
				const seconds = 12
				for second := range seconds {
					for p := range 100 {
						r.store.produce(r.ns, fmt.Sprintf("bad%d.%d", second, p), 1, 0)
					}
					for p := range healthy {
						r.store.produce(r.ns, fmt.Sprintf("ok%d.%d", second, p), 1, 0)
					}
					clocktest.Pass(time.Second)
				}
				r.drained(time.Minute)
				r.stop()
				l := r.store.ledger(r.ns)
				if want := int64(seconds * healthy * 95 / 100); l.Delivered < want {
					t.Errorf("%d of %d healthy partitions were delivered", l.Delivered, seconds*healthy)
				}
			})
		})
	}
}

func TestDeadSinkSeesABoundedNumberOfWritesASecondHoweverManyPartitionsThereAre(t *testing.T) {
	for name, c := range map[string]struct {
		names int // that take turns; 0: each is used once
		write func(context.Context, []*sink.Batch) error
	}{
		"each name used once": {0, func(context.Context, []*sink.Batch) error { return errDown }},
		"the same 200 names":  {200, func(context.Context, []*sink.Batch) error { return errDown }},
		"hanging":             {0, hang},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.sink.write = c.write
				r.start()
				produced := 0
				for range 120 {
					for range 110 {
						id := produced
						if produced++; c.names > 0 {
							id %= c.names
						}
						r.store.produce(r.ns, fmt.Sprint("p", id), 1, 0)
					}
					clocktest.Pass(time.Second)
				}
				first := r.sink.seen()[0].at
				var perSecond [120]int
				for _, w := range r.sink.seen() {
					perSecond[int(w.at.Sub(first)/time.Second)]++
				}
				before, early := 0, 0
				for second, n := range perSecond {
					switch {
					case second < 10:
						before += n
					case second < 60:
						early += n
					case n > 3:
						t.Errorf("%d Writes in second %d", n, second)
					}
				}
				if before > 1024+250 || early > 250 {
					t.Errorf("%d Writes in the first 10 s and %d in the 50 s after them", before, early)
				}
				t.Logf("per second %v", perSecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_ = r.d.Stop(ctx)
				r.verify()
			})
		})
	}
}
