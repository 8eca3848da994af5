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

func TestNeverClaimsMoreThanCanStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Workers = 4
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if got := len(r.store.leased()); got > 4 {
				t.Errorf("%d leases for 4 workers", got)
			}
			clocktest.Take(100 * time.Millisecond)
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
			clocktest.Take(100 * time.Millisecond)
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

func TestHotPartitionIsDrainedWithoutPauses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.roundTrip = time.Millisecond
		r.sink.write = func(context.Context, []*sink.Batch) error { clocktest.Take(time.Millisecond); return nil }
		r.store.produce(r.ns, "hot", 10_000, 0)
		r.start()
		start := time.Now()
		for r.store.ledger(r.ns).Buffered > 128 {
			clocktest.Pass(time.Millisecond)
		}
		// 79 batches of 1 ms, and a claim and a commit a lease of 8.
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("took %v", took)
		}
		r.drained(5 * time.Second)
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
		clocktest.Pass(11 * time.Second)
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
		clocktest.Pass(time.Minute)
		if got := r.store.counts().due; got > 62 {
			t.Errorf("%d Due calls in a minute", got)
		}
		r.stop()
		if r.store.counts().claim != 0 {
			t.Errorf("%d claims of nothing", r.store.counts().claim)
		}
	})
}

func TestPartitionThatTheStoreRejectsDoesNotHoldUpTheOthers(t *testing.T) {
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
		clocktest.Pass(time.Millisecond)
		r.store.produce(r.ns, "whole", 10, 0)
		r.start()
		clocktest.Pass(2 * time.Second)
		if got := len(r.sink.of("whole")); got != 1 {
			t.Errorf("%d writes behind ten broken partitions", got)
		}
		clocktest.Pass(time.Minute)
		if got := r.store.counts().claim; got > 30 {
			t.Errorf("%d claim calls in a minute", got)
		}
		if got := r.lines("claim rejected"); got > 3 {
			t.Errorf("%d lines", got)
		}
		r.store.set(func() { broken = false })
		r.drained(40 * time.Second)
		r.stop()
	})
}

// However many partitions the store rejects, the Due calls get past them.
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
		clocktest.Pass(10 * time.Millisecond)
		healthy := size(3000, 1000)
		for i := range healthy {
			r.store.produce(r.ns, fmt.Sprintf("good%04d", i), 1, 0)
		}
		clocktest.Pass(2 * time.Second) // all are due
		r.start()
		clocktest.Pass(20 * time.Second)
		if l, dueCalls := r.store.ledger(r.ns), r.store.counts().due; l.Delivered != int64(healthy) || dueCalls > 500 {
			t.Errorf("%d of %d healthy entries delivered, %d Due calls", l.Delivered, healthy, dueCalls)
		}
		r.stop()
	})
}

func TestAClaimerDoesNotSleepWhenALeaseEndedSinceItListedWhatIsDue(t *testing.T) {
	t.Parallel()
	f := newInFlight()
	seen := f.releasedSoFar()
	woken := false
	wake := func() { woken = true }
	f.add("p")
	if !f.wakeOnRelease(seen, wake) {
		t.Error("nothing ended, the claimer may sleep")
	}
	if f.remove("p"); !woken {
		t.Error("the end of a lease did not wake the claimer")
	}
	if f.wakeOnRelease(seen, wake) {
		t.Error("the claimer would sleep through what the lease left behind")
	}
}
