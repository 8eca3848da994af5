package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

var largeWrites = sink.Caps{MaxBatches: 10_000, PreferEntries: 10_000, MaxInFlight: 4, Linger: time.Second}

// newGroupRig is a rig whose sink coalesces.
func newGroupRig(t testing.TB, change ...func(*partition.Policy)) *rig {
	r := newRig(t, change...)
	r.sink.caps = largeWrites
	return r
}

// writes are the entries of each Write that the sink saw, and whether it was accepted.
func (s *fakeSink) writesMade() (entries []int, failed int) {
	list := s.seen()
	for i := 0; i < len(list); i += list[i].together {
		n := 0
		for _, w := range list[i : i+list[i].together] {
			n += len(w.seqs)
		}
		if entries = append(entries, n); list[i].err != nil {
			failed++
		}
	}
	return entries, failed
}

func (r *rig) closed(reason string) int {
	return int(testutil.ToFloat64(r.metrics().closed.WithLabelValues(reason)))
}

func startsWith(batches []*sink.Batch, prefix string) bool {
	return slices.ContainsFunc(batches, func(b *sink.Batch) bool { return strings.HasPrefix(b.Partition, prefix) })
}

func TestManySparsePartitionsArriveInAHandfulOfWrites(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t)
		partitions := size(10_000, 3_000)
		for p := range partitions {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 1, 0)
		}
		r.start()
		r.drained(10 * time.Second)
		r.stop()
		if sizes, _ := r.sink.writesMade(); len(sizes) > 4 {
			t.Errorf("Writes of %v entries", sizes)
		}
		r.wantLedger(partition.Ledger{Accepted: int64(partitions), Delivered: int64(partitions)})
	})
}

func TestFewPartitionsWithABacklogDoNotWaitForTheLinger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t, func(p *partition.Policy) { p.Capacity = 20_000 })
		r.store.produce(r.ns, "p", 20_000, 0)
		r.start()
		r.drained(5 * time.Second)
		r.stop()
		if sizes, _ := r.sink.writesMade(); len(sizes) > 11 || r.closed(closedBacklog) == 0 {
			t.Errorf("Writes of %v entries", sizes)
		}
		r.ordered("p")
	})
}

func TestGroupClosesAtTheBoundsOfItsSink(t *testing.T) {
	for _, c := range []struct {
		reason string
		caps   sink.Caps
	}{
		{closedEntries, sink.Caps{MaxBatches: 1000, PreferEntries: 30}},
		{closedBatches, sink.Caps{MaxBatches: 10}},
		{closedBytes, sink.Caps{MaxBatches: 1000, MaxBytes: 400}},
		{closedLinger, sink.Caps{MaxBatches: 1000}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				c.caps.Linger = time.Second
				r.sink.caps = c.caps
				r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
					entries, bytes := 0, 0
					for _, b := range batches {
						entries += len(b.Entries)
						bytes += payloadBytes(b.Entries)
					}
					switch {
					case len(batches) > c.caps.MaxBatches:
						t.Errorf("%d batches", len(batches))
					case c.caps.PreferEntries > 0 && entries > c.caps.PreferEntries+10:
						t.Errorf("%d entries", entries)
					case c.caps.MaxBytes > 0 && bytes > c.caps.MaxBytes:
						t.Errorf("%d bytes", bytes)
					}
					return nil
				}
				for p := range 20 {
					payloads := slices.Repeat([]string{"ten bytes."}, 10)
					r.store.produceAll(r.ns, fmt.Sprintf("p%d", p), 0, payloads...)
				}
				r.start()
				r.drained(10 * time.Second)
				r.stop()
				if r.closed(c.reason) == 0 {
					t.Errorf("no group was closed for %s", c.reason)
				}
			})
		})
	}
}

func TestUnitsOfALeaseStayWithinTheBytesOfAWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Batch = 10 })
		r.sink.caps = sink.Caps{MaxBatches: 100, MaxBytes: 250, Linger: time.Second}
		r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
			if len(batches) > 2 {
				t.Errorf("%d batches of 100 bytes", len(batches))
			}
			return nil
		}
		r.store.produceAll(r.ns, "p", 0, slices.Repeat([]string{"ten bytes."}, 70)...)
		r.start()
		r.drained(10 * time.Second)
		r.stop()
		if sizes, _ := r.sink.writesMade(); len(sizes) != 4 {
			t.Errorf("Writes of %v entries", sizes)
		}
		r.ordered("p")
	})
}

func TestNamedEntriesOfAGroupAreThoseOfTheirPartitionsOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t)
		first := true
		r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
			if !first {
				return nil
			}
			first = false
			var e sink.BatchError
			for i, b := range batches {
				switch b.Partition {
				case "retried":
					e.Fail(i, 2, errDown)
				case "throttled":
					e.Fail(i, 0, sink.Throttle(errDown, 10*time.Second))
				case "rejected":
					e.Fail(i, 1, sink.Permanent(errDown))
				}
			}
			return &e
		}
		names := []string{"a", "retried", "b", "throttled", "c", "rejected", "d"}
		for _, name := range names {
			r.store.produce(r.ns, name, 3, 0)
		}
		r.start()
		r.drained(time.Minute)
		r.stop()
		for _, name := range names {
			list := r.sink.of(name)
			again := 0
			for _, w := range list[1:] {
				again += len(w.seqs)
			}
			want := map[string]int{"retried": 1, "throttled": 1}[name]
			if again != want {
				t.Errorf("%s: %d entries came again, want %d", name, again, want)
			}
		}
		gap := func(name string) time.Duration {
			list := r.sink.of(name)
			return list[len(list)-1].at.Sub(list[0].at)
		}
		if gap("retried") > 3*time.Second || gap("throttled") < 10*time.Second {
			t.Errorf("retried after %v, throttled after %v", gap("retried"), gap("throttled"))
		}
		r.wantLedger(partition.Ledger{Accepted: 21, Delivered: 20, Dead: 1})
	})
}

func TestPoisonEntryOfAGroupCostsOneRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t)
		r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
			clocktest.Take(10 * time.Millisecond)
			for _, b := range batches {
				for _, e := range b.Entries {
					if string(e.Payload) == "poison" {
						return sink.Permanent(errDown)
					}
				}
			}
			return nil
		}
		for p := range 1000 {
			payloads := slices.Repeat([]string{"good"}, 10)
			if p == 700 {
				payloads[3] = "poison"
			}
			r.store.produceAll(r.ns, fmt.Sprintf("p%d", p), 0, payloads...)
		}
		r.start()
		r.drained(20 * time.Second)
		r.stop()
		// Two a step: 10 steps from 1000 members to one, 4 from 10 entries to one.
		sizes, failed := r.sink.writesMade()
		if len(sizes) > 32 || failed > 16 {
			t.Errorf("%d Writes, %d of them rejected: %v", len(sizes), failed, sizes)
		}
		for p := range 1000 {
			for _, w := range r.sink.of(fmt.Sprintf("p%d", p)) {
				if w.attempt != 1 {
					t.Errorf("p%d: attempt %d", p, w.attempt)
				}
			}
		}
		r.wantLedger(partition.Ledger{Accepted: 10_000, Delivered: 9_999, Dead: 1})
	})
}

// What a sink never takes, without saying which: it fails, hangs or panics for a Write
// that has a bad partition.
func TestBadPartitionsAreSoonWrittenApart(t *testing.T) {
	for how, bad := range map[string]func(context.Context, []*sink.Batch) error{
		"fails":  func(context.Context, []*sink.Batch) error { return errDown },
		"hangs":  hang,
		"panics": func(context.Context, []*sink.Batch) error { panic("bug") },
	} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newGroupRig(t)
				r.sink.write = func(ctx context.Context, batches []*sink.Batch) error {
					if startsWith(batches, "bad") {
						return bad(ctx, batches)
					}
					clocktest.Take(20 * time.Millisecond)
					return nil
				}
				r.start()
				begun := time.Now()
				const healthy = 200
				rounds := size(90, 60)
				for round := range rounds {
					for p := range healthy {
						r.store.produce(r.ns, fmt.Sprintf("p%d", p), 1, 0)
					}
					if round%10 == 0 {
						for p := range 20 {
							r.store.produce(r.ns, fmt.Sprintf("bad%d", p), 1, 0)
						}
					}
					clocktest.Pass(time.Second)
				}
				begin := len(r.sink.seen())
				clocktest.Pass(15 * time.Second)
				if got := len(r.sink.seen()) - begin; got > 20*30 {
					t.Errorf("%d batches in 15 s", got)
				}
				late, total := 0, 0
				settled := begun.Add(45 * time.Second)
				for p := range healthy {
					name := fmt.Sprintf("p%d", p)
					delivered := map[int64]bool{}
					for _, seq := range r.sink.accepted(name) {
						delivered[seq] = true
					}
					total += len(delivered)
					for _, w := range r.sink.of(name) {
						if w.attempt > 1 && w.at.After(settled) {
							late++
						}
					}
					r.ordered(name)
				}
				if total != healthy*rounds {
					t.Errorf("%d of %d healthy entries delivered", total, healthy*rounds)
				}
				// The first group fails as a whole, and then smaller ones.
				if late > healthy/50 {
					t.Errorf("%d healthy batches were written again after 45 s", late)
				}
				r.stop()
			})
		})
	}
}

func TestWhatGoesStaleWhileItWaitsExpiresUnwritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t, func(p *partition.Policy) { p.MaxAge, p.Linger = 4*time.Second, 0 })
		r.sink.caps.MaxInFlight = 1
		var slow atomic.Bool
		slow.Store(true)
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if slow.Swap(false) {
				clocktest.Take(3500 * time.Millisecond)
			}
			return nil
		}
		r.store.produce(r.ns, "first", 1, 0)
		r.start()
		clocktest.Pass(1100 * time.Millisecond) // first is being written, alone
		r.store.produce(r.ns, "old", 1, 2*time.Second)
		r.store.produce(r.ns, "mixed", 2, 2*time.Second)
		r.store.produce(r.ns, "mixed", 2, 0)
		r.store.produce(r.ns, "young", 1, 0)
		r.drained(20 * time.Second)
		r.stop()
		if got := len(r.sink.of("old")); got != 0 {
			t.Errorf("the old entry was written %d times", got)
		}
		if got := len(flat(r.sink.of("mixed"))); got != 2 {
			t.Errorf("%d entries of mixed were written", got)
		}
		r.wantLedger(partition.Ledger{Accepted: 7, Delivered: 4, Expired: 3})
	})
}

func TestGroupDoesNotWaitLongerThanItsOldestEntryCan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t, func(p *partition.Policy) { p.Linger = 0 })
		r.sink.caps.Linger = 8 * time.Second
		r.cfg.Lease = time.Minute
		r.start()
		clocktest.Pass(time.Second)
		begin := time.Now()
		r.store.produce(r.ns, "old", 1, r.ns.Policy.MaxAge-2*time.Second)
		r.store.produce(r.ns, "young", 1, 0)
		r.drained(20 * time.Second)
		r.stop()
		list := r.sink.seen()
		if len(list) != 2 || list[0].at.Sub(begin) > 2*time.Second || r.closed(closedDeadline) != 1 {
			t.Errorf("written %v after %v", list, list[0].at.Sub(begin))
		}
		r.wantLedger(partition.Ledger{Accepted: 2, Delivered: 2})
	})
}

func TestLingerIsBoundedByTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t, func(p *partition.Policy) { p.Linger = 0 })
		r.sink.caps.Linger = time.Minute
		r.store.produce(r.ns, "p", 1, 0)
		begin := time.Now()
		r.start()
		r.drained(20 * time.Second)
		r.stop()
		w := r.sink.seen()[0]
		if waited := w.at.Sub(begin); waited != r.cfg.Lease-guard.LeaseMargin-r.cfg.SinkTimeout || w.deadline.Sub(w.at) != r.cfg.SinkTimeout {
			t.Errorf("written after %v with %v to go", waited, w.deadline.Sub(w.at))
		}
	})
}

func TestStopWritesWhatWaitsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t, func(p *partition.Policy) { p.Linger = 0 })
		r.sink.caps.Linger = 3 * time.Second
		for p := range 100 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 1, 0)
		}
		r.start()
		clocktest.Pass(100 * time.Millisecond)
		begin := time.Now()
		r.stop()
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("stopping took %v", took)
		}
		if sizes, _ := r.sink.writesMade(); len(sizes) > 2 || r.closed(closedStop) == 0 {
			t.Errorf("Writes of %v entries", sizes)
		}
		r.wantLedger(partition.Ledger{Accepted: 100, Delivered: 100})
	})
}

func TestStopOutOfPatienceReleasesWhatWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t, func(p *partition.Policy) { p.Linger = 0 })
		r.sink.caps = sink.Caps{MaxBatches: 10, MaxInFlight: 1, Linger: time.Second}
		r.sink.write = hang
		for p := range 100 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 1, 0)
		}
		r.start()
		clocktest.Pass(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.d.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stop: %v", err)
		}
		r.verify()
		if left := r.store.leased(); len(left) > 0 {
			t.Errorf("still leased: %v", left)
		}
		if got := testutil.ToFloat64(r.metrics().givenBack.WithLabelValues(backStopped)); got == 0 {
			t.Error("none is counted as given back")
		}
		r.wantLedger(partition.Ledger{Accepted: 100, Buffered: 100})
	})
}

func TestFailedGroupCountsOnceForTheBreaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t)
		var up atomic.Bool
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if up.Load() {
				return nil
			}
			return errDown
		}
		for p := range 2000 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 1, 0)
		}
		r.start()
		clocktest.Pass(r.ns.Policy.Linger + r.sink.caps.Linger + time.Millisecond)
		g := r.d.namespaces[0].guard
		if sizes, _ := r.sink.writesMade(); len(sizes) != 1 || g.Tripped() {
			t.Errorf("tripped %t after Writes of %v entries", g.Tripped(), sizes)
		}
		clocktest.Pass(2 * time.Minute)
		if sizes, _ := r.sink.writesMade(); !g.Tripped() || len(sizes) > 1024+64+400 {
			t.Errorf("tripped %t after %d Writes to a dead sink", g.Tripped(), len(sizes))
		}
		up.Store(true)
		r.drained(2 * time.Minute)
		r.stop()
	})
}

func TestGroupOfASinkThatIsNotConnectedIsNotPresented(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t)
		r.sink.caps.MaxInFlight = 1
		var calls atomic.Int64
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if calls.Add(1) == 1 {
				clocktest.Take(2 * time.Second) // meanwhile the others gather
				return sink.ErrNotConnected
			}
			return nil
		}
		r.store.produce(r.ns, "first", 1, 0)
		r.start()
		clocktest.Pass(2500 * time.Millisecond)
		for p := range 10 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 128, 0)
		}
		r.drained(time.Minute)
		r.stop()
		for p := range 10 {
			for _, w := range r.sink.of(fmt.Sprintf("p%d", p)) {
				if w.attempt != 1 {
					t.Errorf("attempt %d of what was never presented", w.attempt)
				}
			}
		}
		r.wantLedger(partition.Ledger{Accepted: 1281, Delivered: 1281})
	})
}

func TestAtMostOnceIsNotCoalesced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t, func(p *partition.Policy) { p.Delivery = partition.AtMostOnce })
		for p := range 20 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 1, 0)
		}
		r.start()
		r.drained(10 * time.Second)
		r.stop()
		if sizes, _ := r.sink.writesMade(); len(sizes) != 20 || r.sink.maxWrites > r.sink.caps.MaxInFlight {
			t.Errorf("%d Writes, %d at once", len(sizes), r.sink.maxWrites)
		}
	})
}

func TestConcurrentWritesOfGroupsStayWithinMaxInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t)
		r.sink.caps = sink.Caps{MaxBatches: 10, MaxInFlight: 3, Linger: 100 * time.Millisecond}
		var calls atomic.Int64
		r.sink.write = func(context.Context, []*sink.Batch) error {
			clocktest.Take(50 * time.Millisecond)
			if calls.Add(1)%3 == 0 {
				return errDown
			}
			return nil
		}
		for p := range 300 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 5, 0)
		}
		r.start()
		r.drained(time.Minute)
		r.stop()
		if r.sink.maxWrites != 3 {
			t.Errorf("%d Writes at once", r.sink.maxWrites)
		}
	})
}

func TestPanicOfTheCoalescerStrandsNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t)
		r.store.produce(r.ns, "p", 1, 0)
		r.start()
		clocktest.Pass(time.Millisecond)
		c := r.d.namespaces[0].groups
		later := time.Now().Add(time.Hour)
		m := &member{Write: guard.Write{End: later, Pending: guard.Pending{Entries: 1, Stale: later}}, done: make(chan struct{})}
		c.metrics = nil
		c.deliver(c.queues[trusted], []*member{m})
		if <-m.done; m.outcome.All != guard.Retryable || r.lines("worker panicked") != 1 {
			t.Errorf("outcome %+v, log %v", m.outcome, r.logs.All())
		}
		c.metrics = &r.metrics().groupMetrics
		r.drained(time.Minute)
		r.stop()
	})
}

func TestLeasesThatWaitAreBoundedByTheirPayload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t)
		r.sink.caps.MaxBytes = 1 << 20
		r.sink.write = hang
		for p := range size(2000, 500) {
			r.store.produceAll(r.ns, fmt.Sprintf("p%d", p), 0, strings.Repeat("x", 100_000))
		}
		r.start()
		clocktest.Pass(r.ns.Policy.Linger + 5*time.Second)
		// 42 for four Writes of 1 MiB, and what the last round of claims brought.
		if got := r.value(r.metrics().leases); got > 42+maxClaims {
			t.Errorf("%v leases of 100 kB in hand", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = r.d.Stop(ctx)
		r.verify()
	})
}

// The only Write hangs, past its context. What joins meanwhile must not keep those who
// wait from giving their leases back in time.
func TestWhatWaitsForAWriteIsHandedBackThoughOthersJoin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newGroupRig(t, func(p *partition.Policy) { p.Linger = 0 })
		r.sink.caps = sink.Caps{MaxBatches: 1000, PreferEntries: 1, MaxInFlight: 1, Linger: time.Second}
		ended := make(chan struct{})
		r.sink.write = func(context.Context, []*sink.Batch) error {
			<-ended
			return nil
		}
		r.start()
		c := r.d.namespaces[0].groups
		for p := range 60 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 1, 0)
			clocktest.Pass(500 * time.Millisecond)
			c.mu.Lock()
			for _, m := range c.queues[trusted].waiting {
				if late := time.Since(m.End); late > 0 {
					t.Errorf("%s waits %v after the end of its lease", m.Partition, late)
				}
			}
			c.mu.Unlock()
		}
		close(ended)
		r.drained(time.Minute)
		r.stop()
	})
}
