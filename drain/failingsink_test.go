package drain

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
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
		clocktest.Pass(2 * time.Minute)
		r.stop()
		if quick, rare := len(r.sink.seen()), len(other.seen()); rare < 5 || rare > 25 || quick < 6 {
			t.Errorf("%d attempts, and %d with 20 s between them at most", quick, rare)
		}
	})
}

func TestDeadSinkGetsOnlyProbes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		var down atomic.Bool
		down.Store(true)
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if down.Load() {
				return errDown
			}
			return nil
		}
		for p := range 1000 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 2, 0)
		}
		r.start()
		clocktest.Pass(time.Minute)
		// 256 partitions newly fail, those of the workers' last round too, and then
		// come 232 probes until they are a second apart.
		if got := len(r.sink.seen()); got > 256+64+232+60 {
			t.Errorf("%d writes to a dead sink in a minute", got)
		}
		before := len(r.sink.seen())
		clocktest.Pass(time.Minute)
		if got := len(r.sink.seen()) - before; got > 100 {
			t.Errorf("%d writes to a dead sink in the next minute", got)
		}
		if got := r.value(r.metrics().Tripped); got != 1 {
			t.Errorf("tripped gauge %v", got)
		}
		down.Store(false)
		r.drained(guard.MaxProbePause + 40*time.Second)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 2000, Delivered: 2000})
		if r.value(r.metrics().Tripped) != 0 {
			t.Error("tripped gauge still 1")
		}
		if r.lines("sink failing") != 1 {
			t.Errorf("%d lines about the failure", r.lines("sink failing"))
		}
	})
}

// Six hours of service in a bubble, one with -short: processes start and stop, half of them with a
// context that ends first; the sink is down for minutes, the store for seconds, replies are
// lost all the time. Scheduler, leases, back-off and shutdown leave nothing
// behind, write nothing stale, and once all is well everything is drained.
func TestSixHoursOfFailuresAreAccountedFor(t *testing.T) { sixHours(t, sink.Caps{}) }

func TestSixHoursOfFailuresAreAccountedForWhileCoalescing(t *testing.T) { sixHours(t, largeWrites) }

func sixHours(t *testing.T, caps sink.Caps) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.caps = caps
		roll := rand.New(rand.NewPCG(4, 2))
		began := time.Now()
		var down atomic.Bool // minutes 5 to 9 of every quarter of an hour
		r.sink.write = func(ctx context.Context, _ []*sink.Batch) error {
			if down.Load() {
				return errDown
			}
			return ctx.Err()
		}
		lose := func() fault { // in the store's lock
			switch since := time.Since(began) % (7 * time.Minute); {
			case since < 20*time.Second:
				return unavailable
			case roll.IntN(50) == 0:
				return []fault{lostReply, lostRequest}[roll.IntN(2)]
			}
			return fault{}
		}
		r.store.claimFault = func(partition.ClaimRequest) fault { return lose() }
		r.store.settleFault = func(*partition.Lease) fault { return lose() }
		produced, stops := 0, 0
		for stops < size(18, 2) { // a process lives for 20 minutes; every second one ends out of patience
			r.start()
			for end := time.Now().Add(20 * time.Minute); time.Now().Before(end); clocktest.Pass(10 * time.Second) {
				minute := time.Since(began) % (15 * time.Minute)
				down.Store(minute >= 5*time.Minute && minute < 9*time.Minute)
				n := 1 + produced%200
				r.store.produce(r.ns, fmt.Sprint("p", produced%17), n, 0)
				produced += n
			}
			if stops++; stops%2 == 0 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
				_ = r.d.Stop(ctx) // out of patience: whatever is in hand is given back
				cancel()
				clocktest.Pass(time.Minute)
				r.verify()
			} else {
				r.stop()
			}
		}
		r.store.set(func() { r.store.settleFault, r.store.claimFault = nil, nil })
		down.Store(false)
		r.start()
		r.drained(10 * time.Minute)
		r.stop()
		for p := range 17 {
			r.ordered(fmt.Sprint("p", p))
		}
		l := r.store.ledger(r.ns)
		if l.Accepted != int64(produced) || l.Delivered == 0 || l.Expired == 0 || l.Dead+l.Lost+l.Evicted+l.Buffered != 0 {
			t.Errorf("produced %d: %+v", produced, l)
		}
		t.Logf("%v: %d processes, %+v", time.Since(began).Round(time.Minute), stops+1, l)
	})
}
