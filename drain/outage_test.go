package drain

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

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
		clocktest.Pass(29 * time.Second)
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
		clocktest.Pass(19 * time.Second)
		if got := r.store.counts().due; got > 60 || got < 8 {
			t.Errorf("%d Due calls in 19 s", got)
		}
		r.drained(5 * time.Second)
		r.stop()
	})
}

func TestIncompatibleStoreIsAnOutageAndNoRejectionOfItsPartitions(t *testing.T) {
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
		clocktest.Pass(time.Minute)
		if got := r.store.counts().claim; got < 20 || got > 100 {
			t.Errorf("%d claim calls in a minute", got)
		}
		if r.lines("claim rejected") != 0 || r.lines("store failing, claims paused") != 1 {
			t.Errorf("log %v", r.logs.All())
		}
		r.store.set(func() {
			misfit = false
			r.store.dueFault = func() error { return partition.ErrIncompatible }
		})
		clocktest.Pass(time.Minute)
		r.store.set(func() { r.store.dueFault = nil })
		r.drained(maxStorePause + time.Second)
		r.stop()
		if r.lines("store failing, claims paused") != 1 || r.lines("store serves claims again") != 1 {
			t.Errorf("log %v", r.logs.All())
		}
		r.wantLedger(partition.Ledger{Accepted: 10, Delivered: 10})
	})
}

// While Redis rejects every write the drain pauses: the sink sees what was in
// hand, and nothing again and again, for no lease can be taken. Afterwards each
// batch that could not be committed comes once more, and the account is exact.
func TestRedisThatRejectsWritesPausesTheDrain(t *testing.T) {
	t.Parallel()
	for _, rejection := range redistest.Rejections[:size(len(redistest.Rejections), 1)] {
		t.Run(rejection.Word, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			policy := partition.DefaultPolicy()
			policy.Linger = 10 * time.Millisecond
			cfg := DefaultConfig()
			cfg.Workers, cfg.SinkTimeout, cfg.Lease, cfg.Poll = 4, 100*time.Millisecond, 2100*time.Millisecond, 20*time.Millisecond
			const partitions, entries = 12, 300
			inHand, mayEnd := make(chan struct{}, partitions), make(chan struct{})
			var writes atomic.Int64
			s := &fakeSink{write: func(context.Context, []*sink.Batch) error {
				if writes.Add(1) <= int64(cfg.Workers) {
					inHand <- struct{}{}
					<-mayEnd // until after the fault began: its commit is rejected
				}
				return nil
			}}
			p := startProcess(t, server.URL(), policy, cfg, s)
			for i := range partitions {
				p.produce(t, fmt.Sprintf("p%d", i), entries)
			}
			p.start(t)
			for range cfg.Workers {
				<-inHand
			}
			rejection.Begin(t, server)
			close(mayEnd)

			m := p.d.namespaces[0].metrics
			rejected := func() float64 { return testutil.ToFloat64(m.claims.WithLabelValues(claimUnavailable)) }
			redistest.Until(t, 20*time.Second, "the leases in hand are given up", func() bool {
				return testutil.ToFloat64(m.lapsed) == float64(cfg.Workers)
			})
			before, settled := rejected(), writes.Load()
			redistest.Until(t, 20*time.Second, "claims are rejected, those of lapsed leases too", func() bool { return rejected() > before+partitions })
			// A lease may cover several batches: those after the first were in hand, too.
			if got := writes.Load(); got != settled || got > int64(cfg.Workers*cfg.MaxLeaseBatches) {
				t.Errorf("%d Writes while the store rejected writes, %d of them after the leases in hand", got, got-settled)
			}
			rejection.End(t, server)
			p.drained(t, 30*time.Second)
			p.stop(t)
			if l := p.ledger(t); l != (partition.Ledger{Accepted: partitions * entries, Delivered: partitions * entries}) {
				t.Errorf("ledger %+v", l)
			}
			r := &rig{t: t, sink: s}
			again := 0
			for i := range partitions {
				name := fmt.Sprintf("p%d", i)
				r.ordered(name)
				times := map[int64]int{}
				for _, seq := range flat(s.of(name)) {
					if times[seq]++; times[seq] == 2 {
						again++
					} else if times[seq] > 2 {
						t.Fatalf("%s: %d came %d times", name, seq, times[seq])
					}
				}
				if len(times) != entries {
					t.Errorf("%s: the sink saw %d of %d entries", name, len(times), entries)
				}
			}
			t.Logf("%d claims rejected meanwhile, %d of %d entries came twice", int(rejected()), again, partitions*entries)
		})
	}
}

// A store that is full still drains, and so makes room.
func TestRedisThatIsFullIsDrained(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	policy := partition.DefaultPolicy()
	policy.Linger = 10 * time.Millisecond
	s := &fakeSink{}
	p := startProcess(t, server.URL(), policy, DefaultConfig(), s)
	for i := range 10 {
		p.produce(t, fmt.Sprintf("p%d", i), 1000)
	}
	redistest.Full.Begin(t, server)
	p.start(t)
	p.drained(t, 30*time.Second)
	p.stop(t)
	if l := p.ledger(t); l != (partition.Ledger{Accepted: 10_000, Delivered: 10_000}) {
		t.Errorf("ledger %+v", l)
	}
	redistest.Full.End(t, server)
	p.produce(t, "p0", 1)
}
