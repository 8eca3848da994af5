package drain

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

// Six hours of service in a bubble: processes start and stop, half of them with a
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
		for time.Since(began) < 6*time.Hour {
			r.start()
			for end := time.Now().Add(20 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Second) {
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
				time.Sleep(time.Minute)
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
		if stops < 17 {
			t.Errorf("only %d processes came and went", stops)
		}
		t.Logf("%v: %d processes, %+v", time.Since(began).Round(time.Minute), stops+1, l)
	})
}
