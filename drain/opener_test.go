package drain

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

func TestNothingIsClaimedBeforeTheSinkIsOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		fails := 6
		r.sink.open = func(context.Context) error {
			if fails--; fails >= 0 {
				return errDown
			}
			if r.store.counts().claim > 0 {
				t.Error("claimed before the sink was open")
			}
			return nil
		}
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		r.drained(2 * time.Minute)
		clocktest.Pass(5 * time.Second)
		r.store.produce(r.ns, "p", 1, 0)
		r.drained(10 * time.Second)
		r.stop()
		if r.sink.opens != 7 || r.sink.closes != 1 {
			t.Errorf("opened %d times, closed %d times", r.sink.opens, r.sink.closes)
		}
		if r.lines("sink failing") != 1 || r.lines("sink recovered") != 1 || r.lines("sink open") != 1 {
			t.Errorf("log %v", r.logs.All())
		}
	})
}

func TestOpenThatPanicsIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.open = func(context.Context) error {
			if opens, _ := r.sink.state(); opens == 1 {
				panic("not yet")
			}
			return nil
		}
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		if got := r.value(r.metrics().Panics); got != 1 {
			t.Errorf("panics %v", got)
		}
	})
}

func TestSinkThatLostItsConnectionIsReopenedWhenNoWriteRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		var connected atomic.Bool
		r.sink.open = func(context.Context) error {
			opens, running := r.sink.state()
			if running > 0 {
				t.Errorf("opened under %d Writes", running)
			}
			if opens > 1 {
				before := r.store.counts().claim
				clocktest.Take(3 * time.Second)
				if r.store.counts().claim != before {
					t.Error("claimed while the sink was not connected")
				}
			}
			connected.Store(true)
			return nil
		}
		var calls atomic.Int64
		r.sink.write = func(context.Context, []*sink.Batch) error {
			n := calls.Add(1)
			if n == 10 {
				connected.Store(false)
			}
			ok := connected.Load()
			clocktest.Take(time.Duration(n) * time.Millisecond)
			if !ok {
				return fmt.Errorf("write: %w", sink.ErrNotConnected)
			}
			return nil
		}
		for p := range 40 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 100, 0)
		}
		r.start()
		r.drained(time.Minute)
		r.stop()
		if r.sink.opens != 2 {
			t.Errorf("opened %d times", r.sink.opens)
		}
		r.wantLedger(partition.Ledger{Accepted: 4000, Delivered: 4000})
	})
}
