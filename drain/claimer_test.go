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
)

func TestNeverClaimsMoreThanCanStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Workers = 4
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if got := len(r.store.leased()); got > 4 {
				t.Errorf("%d leases for 4 workers", got)
			}
			time.Sleep(100 * time.Millisecond)
			return nil
		}
		for p := range 40 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 1, 0)
		}
		r.start()
		r.drained(10 * time.Second)
		r.stop()
		if r.sink.maxWrites != 4 {
			t.Errorf("%d writes at once", r.sink.maxWrites)
		}
	})
}

func TestMaxInFlightBoundsWritesBeforeTheLeaseIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.caps = sink.Caps{MaxInFlight: 2}
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if got := len(r.store.leased()); got > 2 {
				t.Errorf("%d leases", got)
			}
			time.Sleep(100 * time.Millisecond)
			return nil
		}
		for p := range 10 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 1, 0)
		}
		r.start()
		r.drained(10 * time.Second)
		r.stop()
		if r.sink.maxWrites != 2 {
			t.Errorf("%d writes at once", r.sink.maxWrites)
		}
	})
}

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
				r.sink.write = func(context.Context, []*sink.Batch) error { time.Sleep(c.write); return nil }
				for p := range c.partitions {
					r.store.produce(r.ns, fmt.Sprintf("p%d", p), 128*20, 0)
				}
				r.start()
				time.Sleep(c.write * time.Duration(10*c.partitions/c.workers+10))
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
		d := newDepth(&partition.Namespace{}, c.together, DefaultConfig().MaxLeaseBatches)
		if got := d.of(c.due, c.free, c.pace); got != c.want {
			t.Errorf("%+v: %d batches", c, got)
		}
	}
}

func TestHotPartitionIsDrainedWithoutPauses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.roundTrip = time.Millisecond
		r.sink.write = func(context.Context, []*sink.Batch) error { time.Sleep(time.Millisecond); return nil }
		r.store.produce(r.ns, "hot", 10_000, 0)
		r.start()
		start := time.Now()
		for r.store.ledger(r.ns).Buffered > 128 {
			time.Sleep(time.Millisecond)
		}
		// 79 batches of 1 ms, and a claim and a commit a lease of 8.
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("took %v", took)
		}
		r.drained(5 * time.Second)
		r.stop()
	})
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
		time.Sleep(2 * time.Second)
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
		time.Sleep(2 * time.Second) // all are due
		r.start()
		time.Sleep(time.Millisecond)
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

func TestEmptyRoundsOfClaimsDoNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.produce(r.ns, "p", 1, 0)
		p := r.store.spaces["games"].partitions["p"]
		r.store.claimFault = func(partition.ClaimRequest) fault { p.due += 1; return fault{} } // never quite due
		r.start()
		time.Sleep(11 * time.Second)
		if got := r.store.counts().claim; got > 500 {
			t.Errorf("%d claims in 10 s", got)
		}
		r.store.set(func() { r.store.claimFault = nil })
		r.drained(5 * time.Second)
		r.stop()
	})
}

func TestIdleClaimerAsksOnceAPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		time.Sleep(time.Minute)
		if got := r.store.counts().due; got > 62 {
			t.Errorf("%d Due calls in a minute", got)
		}
		r.stop()
		if r.store.counts().claim != 0 {
			t.Errorf("%d claims of nothing", r.store.counts().claim)
		}
	})
}

func TestStoreOutageIsLoggedOnceAndUnknownClaimsAreReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Shards = 4 })
		up := time.Now().Add(30 * time.Second)
		r.store.claimFault = func(partition.ClaimRequest) fault {
			if time.Now().Before(up) {
				return lostReply
			}
			return fault{}
		}
		for p := range 20 {
			r.store.produce(r.ns, fmt.Sprintf("%0*d", p%4+1, p), 10, 0)
		}
		r.start()
		time.Sleep(29 * time.Second)
		if got := r.store.counts().claim; got > 4*100 {
			t.Errorf("%d claim calls in 28 s of outage", got)
		}
		r.drained(10 * time.Second)
		r.stop()
		if r.lines("store failing, claims paused") != 1 || r.lines("store serves claims again") != 1 {
			t.Errorf("lines: %v", r.logs.All())
		}
		if r.store.counts().releaseUnknown == 0 {
			t.Error("no unknown claim was released")
		}
		r.wantLedger(partition.Ledger{Accepted: 200, Delivered: 200})
	})
}

func TestStoreThatIsDownAtTheStartIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		up := time.Now().Add(20 * time.Second)
		r.store.dueFault = func() error {
			if time.Now().Before(up) {
				return partition.ErrUnavailable
			}
			return nil
		}
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		time.Sleep(19 * time.Second)
		if got := r.store.counts().due; got > 60 || got < 8 {
			t.Errorf("%d Due calls in 19 s", got)
		}
		r.drained(5 * time.Second)
		r.stop()
	})
}

func TestPartitionThatTheStoreRefusesDoesNotHoldUpTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Workers = 2
		broken := true
		r.store.claimFault = func(c partition.ClaimRequest) fault {
			if broken && c.Partition[0] == 'b' {
				return fault{err: partition.ErrBroken}
			}
			return fault{}
		}
		for p := range 10 {
			r.store.produce(r.ns, fmt.Sprintf("b%d", p), 1, 0)
		}
		time.Sleep(time.Millisecond)
		r.store.produce(r.ns, "whole", 10, 0)
		r.start()
		time.Sleep(2 * time.Second)
		if got := len(r.sink.of("whole")); got != 1 {
			t.Errorf("%d writes behind ten broken partitions", got)
		}
		time.Sleep(time.Minute)
		if got := r.store.counts().claim; got > 30 {
			t.Errorf("%d claim calls in a minute", got)
		}
		if got := r.lines("claim refused"); got > 3 {
			t.Errorf("%d lines", got)
		}
		r.store.set(func() { broken = false })
		r.drained(40 * time.Second)
		r.stop()
	})
}

func TestIncompatibleStoreIsAnOutageAndNoRefusalOfItsPartitions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		misfit := true
		r.store.claimFault = func(partition.ClaimRequest) fault {
			if misfit {
				return fault{err: fmt.Errorf("shards: %w", partition.ErrIncompatible)}
			}
			return fault{}
		}
		for p := range 10 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 1, 0)
		}
		r.start()
		time.Sleep(time.Minute)
		if got := r.store.counts().claim; got < 20 || got > 100 {
			t.Errorf("%d claim calls in a minute", got)
		}
		if r.lines("claim refused") != 0 || r.lines("store failing, claims paused") != 1 {
			t.Errorf("log %v", r.logs.All())
		}
		r.store.set(func() {
			misfit = false
			r.store.dueFault = func() error { return partition.ErrIncompatible }
		})
		time.Sleep(time.Minute)
		r.store.set(func() { r.store.dueFault = nil })
		r.drained(maxStorePause + time.Second)
		r.stop()
		if r.lines("store failing, claims paused") != 1 || r.lines("store serves claims again") != 1 {
			t.Errorf("log %v", r.logs.All())
		}
		r.wantLedger(partition.Ledger{Accepted: 10, Delivered: 10})
	})
}

// However many partitions the store refuses, the Due calls get past them.
func TestDueCallsListPastManyQuarantinedPartitions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Workers = 64
		r.store.roundTrip = time.Millisecond
		r.store.claimFault = func(c partition.ClaimRequest) fault {
			if strings.HasPrefix(c.Partition, "bad") {
				return fault{err: partition.ErrBroken}
			}
			return fault{}
		}
		for i := range 600 {
			r.store.produce(r.ns, fmt.Sprintf("bad%04d", i), 1, 0)
		}
		time.Sleep(10 * time.Millisecond)
		const healthy = 3000
		for i := range healthy {
			r.store.produce(r.ns, fmt.Sprintf("good%04d", i), 1, 0)
		}
		time.Sleep(2 * time.Second) // all are due
		r.start()
		time.Sleep(20 * time.Second)
		if l, dueCalls := r.store.ledger(r.ns), r.store.counts().due; l.Delivered != healthy || dueCalls > 500 {
			t.Errorf("%d of %d healthy entries delivered, %d Due calls", l.Delivered, healthy, dueCalls)
		}
		r.stop()
	})
}
