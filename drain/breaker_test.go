package drain

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

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
		time.Sleep(time.Minute)
		// 256 partitions newly fail, those of the workers' last round too, and then
		// come 232 probes until they are a second apart.
		if got := len(r.sink.seen()); got > 256+64+232+60 {
			t.Errorf("%d writes to a dead sink in a minute", got)
		}
		before := len(r.sink.seen())
		time.Sleep(time.Minute)
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

func TestHealthyPartitionIsFoundAmongManyThatFailFromTheStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.write = func(_ context.Context, b []*sink.Batch) error {
			if b[0].Partition != "ok" {
				return errDown
			}
			return nil
		}
		for p := range 200 {
			r.store.produce(r.ns, fmt.Sprintf("bad%d", p), 1, 0)
		}
		r.store.produce(r.ns, "ok", 1, 0)
		r.start()
		// 200 new partitions do not trip the breaker.
		time.Sleep(2 * r.ns.Policy.Linger)
		if got := len(r.sink.accepted("ok")); got != 1 {
			t.Fatalf("the healthy partition was delivered %d times", got)
		}
		r.stop()
	})
}
