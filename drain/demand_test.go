package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

func TestLeasesCoverMoreBatchesWhereNoPartitionWaitsLongForIt(t *testing.T) {
	for name, c := range map[string]struct {
		partitions, workers int
		write               time.Duration
		wantMax             int
	}{
		"one partition, fast":    {1, 64, time.Millisecond, 8},
		"one partition, 100 ms":  {1, 64, 100 * time.Millisecond, 2},
		"one partition, slow":    {1, 64, time.Second, 1},
		"many partitions, 20 ms": {30, 2, 20 * time.Millisecond, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.cfg.Workers = c.workers
				deepest := 0
				r.store.claimFault = func(claim partition.ClaimRequest) fault {
					deepest = max(deepest, claim.MaxBatches)
					return fault{}
				}
				r.sink.write = func(context.Context, []*sink.Batch) error { clocktest.Take(c.write); return nil }
				for p := range c.partitions {
					r.store.produce(r.ns, fmt.Sprintf("p%d", p), 128*20, 0)
				}
				r.start()
				clocktest.Pass(c.write * time.Duration(10*c.partitions/c.workers+10))
				r.store.set(func() { // while there still is a backlog
					if deepest != c.wantMax {
						t.Errorf("leases of up to %d batches, want %d", deepest, c.wantMax)
					}
				})
				r.drained(5 * time.Minute)
				r.stop()
			})
		})
	}
}

func TestDepthOfALeaseLetsAllThatAreDueHaveTheirTurn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		due, free, together int
		pace                time.Duration
		want                int
	}{
		{0, 64, 1, time.Microsecond, 8},
		{100, 64, 1, time.Microsecond, 8},
		{500, 64, 1, time.Microsecond, 3},     // Redis needs 75 ms for one batch of each
		{3000, 64, 1, time.Microsecond, 1},    // and 450 ms here
		{100, 64, 1, time.Second, 1},          // the sink is slow
		{3000, 64, 4, time.Microsecond, 4},    // but takes four at once
		{64, 64, 1, 20 * time.Millisecond, 8}, // one round of workers
		{64, 8, 1, 20 * time.Millisecond, 1},  // eight
		{100, 64, 1, 0, 1},                    // nothing known of the sink
	} {
		d := newLeaseDepth(&partition.Namespace{}, c.together, DefaultConfig().MaxLeaseBatches)
		if got := d.of(c.due, c.free, c.pace); got != c.want {
			t.Errorf("%+v: %d batches", c, got)
		}
	}
}

func TestLosingToAnotherDrainerMovesToARandomOffset(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Workers = 4
		r.store.produce(r.ns, "p", 1, 0)
		r.start()
		r.drained(5 * time.Second)
		for range 10 { // so long a process that starts reckons with others
			r.store.produce(r.ns, "p", 1, 0)
			r.drained(5 * time.Second)
		}
		for _, offset := range r.store.dueOffsets() {
			if offset != 0 {
				t.Errorf("offset %d although no other drainer was in the way", offset)
			}
		}
		// Now another drainer is quicker with the oldest.
		for p := range 200 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 1, 0)
		}
		rival := 0
		r.store.set(func() {
			r.store.claimFault = func(c partition.ClaimRequest) fault {
				if rival++; rival <= 20 {
					r.store.spaces["games"].partitions[c.Partition].due += 60_000
				}
				return fault{}
			}
		})
		clocktest.Pass(2 * time.Second)
		moved := false
		for _, offset := range r.store.dueOffsets() {
			moved = moved || offset > 0
		}
		if !moved {
			t.Error("always looked at the same end of the queue")
		}
		r.drained(2 * time.Minute)
		r.stop()
	})
}

func TestAClaimerSpreadsOutWhileOthersCompeteAndNoLonger(t *testing.T) {
	t.Parallel()
	c := contention(firstContention)
	names := func() []string { return strings.Split("abcdefghijklmnopqrstuvwxyz", "") }
	for range 20 { // no other drainer is there
		c.learn(0)
	}
	if c.any() || !slices.Equal(c.sample(names()), names()) {
		t.Errorf("alone: contention %v, claims %v, want all, the oldest first", c, c.sample(names()))
	}
	for range 20 {
		c.learn(0.5)
	}
	if got := c.sample(names()); len(got) > 14 || len(got) < 12 || slices.IsSorted(got) {
		t.Errorf("others win half: claims %v, want about half, at random", got)
	}
	c.learn(0) // one good round proves nothing
	if !c.any() {
		t.Error("others are forgotten after one round")
	}
	for range 20 {
		c.learn(1)
	}
	if got := c.sample(names()); len(got) != 1 {
		t.Errorf("others win all: claims %v, want one", got)
	}
}

func TestARoundEndsWhenOthersHaveWonMostOfIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		for p := range 60 {
			r.store.produce(r.ns, fmt.Sprintf("p%02d", p), 1, 0)
		}
		claims := 0
		r.store.claimFault = func(c partition.ClaimRequest) fault {
			claims++
			r.store.spaces["games"].partitions[c.Partition].due += 60_000 // somebody else has it
			return fault{}
		}
		clocktest.Pass(2 * time.Second) // all are due
		r.start()
		clocktest.Pass(time.Millisecond)
		dueCalls := len(r.store.dueOffsets())
		r.store.set(func() {
			if claims == 0 || claims > dueCalls*claimsAtOnce {
				t.Errorf("%d claims that others had won after %d Due calls, want %d a call at most", claims, dueCalls, claimsAtOnce)
			}
			r.store.claimFault = nil
		})
		r.drained(2 * time.Minute)
		r.stop()
	})
}
