package drain

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition"
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
		time.Sleep(time.Minute)
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
