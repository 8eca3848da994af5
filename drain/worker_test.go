package drain

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

func TestDeliversEverythingInOrderInBatches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		for p := range 10 {
			r.store.produce(r.ns, fmt.Sprintf("p%d", p), 1000, 0)
		}
		r.start()
		r.drained(5 * time.Second)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 10_000, Delivered: 10_000})
		for p := range 10 {
			name := fmt.Sprintf("p%d", p)
			list := r.sink.of(name)
			seqs := flat(list)
			for i, seq := range seqs {
				if seq != seqs[0]+int64(i) {
					t.Fatalf("%s: entry %d has sequence %d, the first %d", name, i, seq, seqs[0])
				}
			}
			for i, w := range list {
				if len(w.seqs) > 128 || (len(w.seqs) < 128 && i < len(list)-1) {
					t.Errorf("%s: batch %d of %d has %d entries", name, i, len(list), len(w.seqs))
				}
			}
		}
		if got := r.outcome(outcomeDelivered); got != 10_000 {
			t.Errorf("delivered metric %d", got)
		}
	})
}

func TestPartFilledBatchWaitsForTheLingerOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		clocktest.Pass(400 * time.Millisecond)
		r.store.produce(r.ns, "p", 3, 0)
		born := time.Now()
		r.drained(5 * time.Second)
		r.stop()
		if late := r.sink.seen()[0].at.Sub(born) - time.Second; late < 0 || late > 5*time.Millisecond {
			t.Errorf("written %v after the linger", late)
		}
	})
}

func TestFailedBatchComesAgainWithTheSameIDAndAHigherAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		fails := 4
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if fails--; fails >= 0 {
				return errDown
			}
			return nil
		}
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		list := r.sink.seen()
		if len(list) != 5 {
			t.Fatalf("%d writes, want 5", len(list))
		}
		for i, w := range list {
			if w.attempt != i+1 || w.id != list[0].id {
				t.Errorf("write %d: attempt %d id %s, want %d and %s", i, w.attempt, w.id, i+1, list[0].id)
			}
		}
		if got := r.outcome(outcomeRetried); got != 40 {
			t.Errorf("retried metric %d, want 40", got)
		}
		r.wantLedger(partition.Ledger{Accepted: 10, Delivered: 10})
	})
}

func TestThrottleIsHonoured(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		once := true
		r.sink.write = func(context.Context, []*sink.Batch) error {
			if once {
				once = false
				return sink.Throttle(errDown, 20*time.Second)
			}
			return nil
		}
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		list := r.sink.seen()
		if gap := list[1].at.Sub(list[0].at); gap < 20*time.Second || gap > 21*time.Second {
			t.Errorf("the next attempt came after %v", gap)
		}
	})
}

func TestWriteIsCutOffAtSinkTimeoutAndRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		calls := 0
		r.sink.write = func(ctx context.Context, b []*sink.Batch) error {
			switch calls++; calls {
			case 1:
				deadline, _ := ctx.Deadline()
				if got := time.Until(deadline); got != r.cfg.SinkTimeout {
					t.Errorf("deadline in %v", got)
				}
				return hang(ctx, b)
			case 2:
				_ = hang(ctx, b)
				return errDown // a sink that does not say why
			}
			return nil
		}
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		if r.failures(guard.ReasonTimeout) != 2 || calls != 3 {
			t.Errorf("timeouts %d, calls %d", r.failures(guard.ReasonTimeout), calls)
		}
		r.wantLedger(partition.Ledger{Accepted: 10, Delivered: 10})
	})
}

func TestPanicOfASinkIsARetryableError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		calls := 0
		r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
			if calls++; calls < 3 {
				panic(string(batches[0].Entries[0].Payload))
			}
			return nil
		}
		r.store.produceAll(r.ns, "p", 0, "secret")
		r.start()
		r.drained(time.Minute)
		r.stop()
		if got := r.value(r.metrics().Panics); got != 2 {
			t.Errorf("panics %v", got)
		}
		if got := r.value(r.metrics().lapsed); got != 0 {
			t.Errorf("lapsed %v: the lease should have been released", got)
		}
		r.wantLedger(partition.Ledger{Accepted: 1, Delivered: 1})
		for _, line := range r.logs.All() {
			if bytes.Contains([]byte(fmt.Sprint(line.ContextMap()["error"])), []byte("secret")) {
				t.Errorf("a payload in the log: %+v", line)
			}
		}
	})
}

func TestPanicOutsideOfTheSinkLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		// A lease that does not keep the store's word panics the worker.
		r.store.produce(r.ns, "p", 10, 0)
		r.store.spoil = 1
		r.start()
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 10, Delivered: 10})
		if r.value(r.metrics().Panics) != 1 || r.lines("worker panicked") != 1 {
			t.Errorf("panics %v, log %v", r.value(r.metrics().Panics), r.logs.All())
		}
	})
}

func TestWriteThatItsLeaseWouldCutOffIsNotBegun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Batch = 10 })
		writes := 0
		r.sink.write = func(ctx context.Context, _ []*sink.Batch) error {
			if writes++; writes == 1 {
				clocktest.Take(time.Millisecond) // the next lease is of eight
			} else {
				clocktest.Take(3 * time.Second)
			}
			return ctx.Err()
		}
		r.store.released = func(s *partition.Release) {
			if s.Attempt != 0 || s.Delay != 0 {
				t.Errorf("released with attempt %d delay %v: the rest was not presented", s.Attempt, s.Delay)
			}
		}
		r.store.produce(r.ns, "p", 90, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		for _, w := range r.sink.seen() {
			if w.attempt != 1 {
				t.Errorf("attempt %d of what was never presented", w.attempt)
			}
			if left := w.deadline.Sub(w.at); left < r.cfg.SinkTimeout/2 {
				t.Errorf("a Write was given %v", left)
			}
		}
		if got := r.store.counts().claim; got != 3 {
			t.Errorf("%d claims: the lease of eight batches was to be given back", got)
		}
		r.wantLedger(partition.Ledger{Accepted: 90, Delivered: 90})
	})
}

func TestRestOfALeaseIsReleasedWhenTheSinkLosesItsConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Batch = 10 })
		reopen := make(chan struct{})
		r.sink.open = func(context.Context) error {
			if opens, _ := r.sink.state(); opens > 1 {
				<-reopen
			}
			return nil
		}
		var writes atomic.Int64
		r.sink.write = func(_ context.Context, b []*sink.Batch) error {
			switch n := writes.Add(1); {
			case b[0].Partition == "bad" && b[0].Attempt == 1:
				return sink.ErrNotConnected
			case n == 1:
				clocktest.Take(time.Millisecond) // the next lease is of eight
			case b[0].Partition == "p":
				clocktest.Take(600 * time.Millisecond)
			}
			return nil
		}
		r.store.produce(r.ns, "p", 90, 0)
		r.start()
		clocktest.Pass(300 * time.Millisecond) // p's lease of eight is under way
		if got := r.store.leased(); len(got) != 1 {
			t.Errorf("leased %v", got)
		}
		r.store.produce(r.ns, "bad", 10, 0)
		clocktest.Pass(3 * time.Second)
		if got := len(r.sink.of("p")); got != 2 {
			t.Errorf("%d batches were written to a sink that is not connected", got-2)
		}
		if got := r.store.leased(); len(got) > 0 {
			t.Errorf("%v stay leased while the sink is away", got)
		}
		close(reopen)
		r.drained(time.Minute)
		r.stop()
		for _, w := range r.sink.of("p") {
			if w.attempt != 1 {
				t.Errorf("attempt %d of what was never presented", w.attempt)
			}
		}
	})
}

func TestProcessThatWasStoppedDoesNotWriteAfterItsLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.produce(r.ns, "p", 10, 0)
		begin := time.Now()
		r.store.stall = func() {
			if time.Since(begin) < 5*time.Second && len(r.store.leased()) > 0 {
				clocktest.Take(r.cfg.Lease + time.Second) // after it judged what is fresh
			}
		}
		r.start()
		r.drained(time.Minute)
		r.stop()
		list := r.sink.seen()
		if len(list) != 1 || list[0].at.Sub(begin) < r.cfg.Lease {
			t.Errorf("written %+v", list)
		}
		r.wantLedger(partition.Ledger{Accepted: 10, Delivered: 10})
	})
}
