package drain

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

func newTestLimit(n int) (*adaptiveLimit, *slots) {
	s := newSlots(n)
	return newAdaptiveLimit(s, prometheus.NewGauge(prometheus.GaugeOpts{Name: "limit"})), s
}

// answer makes the limit see Writes of a duration for a time, with all slots taken.
func answer(l *adaptiveLimit, each, lasting time.Duration) {
	for end := time.Now().Add(lasting); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		n := l.slots.more(l.slots.size())
		l.answered(each)
		l.slots.put(n)
	}
}

func TestLimitFallsWhileWritesGetSlowerAndRecovers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, s := newTestLimit(64)
		answer(l, 50*time.Millisecond, 2*time.Second)
		if got := l.get(); got != 64 {
			t.Errorf("%d Writes while none is slower than before", got)
		}
		slower := 50 * time.Millisecond
		for range 10 {
			slower = slower * 3 / 2
			answer(l, slower, slower+100*time.Millisecond)
		}
		low := l.get()
		if low > 40 || s.available() != low {
			t.Errorf("%d Writes, %d slots, after they slowed down", low, s.available())
		}
		answer(l, 50*time.Millisecond, 20*time.Second)
		if got := l.get(); got != 64 || s.available() != 64 {
			t.Errorf("%d Writes, %d slots, after they were quick again", got, s.available())
		}
	})
}

func TestLimitIgnoresWritesThatAreQuick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, _ := newTestLimit(64)
		for i := range 20 {
			answer(l, time.Duration(1+i%10)*time.Millisecond/2, 200*time.Millisecond)
		}
		if got := l.get(); got != 64 {
			t.Errorf("%d Writes", got)
		}
	})
}

func TestThrottleLowersTheLimitBelowWhatWasInUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, s := newTestLimit(64)
		n := s.more(10)
		for range minLimitAnswers {
			l.throttled()
		}
		s.put(n)
		if l.get() != 9 || s.available() != 9 {
			t.Errorf("%d Writes, %d slots", l.get(), s.available())
		}
	})
}

func TestLimitFallsToOneWhenEverythingIsThrottledAndNoFurther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, s := newTestLimit(64)
		for range 60 * 100 {
			l.throttled()
			time.Sleep(10 * time.Millisecond)
		}
		if l.get() != 1 || s.available() != 1 {
			t.Errorf("%d Writes, %d slots", l.get(), s.available())
		}
	})
}

func TestWriteThatLastsLendsItsSlotWhileOthersAreWithdrawn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, s := newTestLimit(4)
		l.begin()() // nothing is withdrawn: nothing to lend
		l.mu.Lock()
		l.move(1)
		l.mu.Unlock()
		if s.more(4) != 1 {
			t.Fatal("more than one slot")
		}
		end := l.begin()
		time.Sleep(minLendAfter - time.Millisecond)
		if s.available() != 0 {
			t.Error("lent too early")
		}
		time.Sleep(2 * time.Millisecond)
		if s.more(4) != 1 {
			t.Fatal("no slot was lent")
		}
		endOther := l.begin()
		end()
		s.put(1) // the lent one is taken back
		if s.available() != 0 {
			t.Error("two Writes run")
		}
		endOther()
		s.put(1)
		if s.available() != 1 {
			t.Errorf("%d slots at the end", s.available())
		}
	})
}

func TestSlotsThatAreTakenAreWithdrawnWhenTheyComeBack(t *testing.T) {
	t.Parallel()
	s := newSlots(8)
	taken := s.more(6)
	s.withdraw(5)
	if s.available() != 0 {
		t.Errorf("%d free", s.available())
	}
	s.restore(1)
	s.put(taken)
	if s.available() != 4 {
		t.Errorf("%d free, want 4", s.available())
	}
	s.restore(4)
	if s.available() != s.size() {
		t.Errorf("%d free, want all", s.available())
	}
}

func TestSinkThatHoldsOnlySoManyWritesIsNotGivenMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Batch = 1 })
		var mu sync.Mutex
		running := 0
		r.sink.write = func(context.Context, []*sink.Batch) error {
			mu.Lock()
			running++
			n := running
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				running--
			}()
			if n > 24 {
				time.Sleep(time.Millisecond)
				return sink.Throttle(errDown, 100*time.Millisecond)
			}
			time.Sleep(20 * time.Millisecond)
			return nil
		}
		r.start()
		for range 40 {
			for p := range 400 {
				r.store.produce(r.ns, fmt.Sprintf("p%d", p), 2, 0)
			}
			time.Sleep(time.Second / 2)
		}
		if got := r.metrics().concurrency; r.value(got) > 40 {
			t.Errorf("%v Writes at once to a sink that holds 24", r.value(got))
		}
		r.drained(time.Minute)
		r.stop()
	})
}

// The rule: what a sink throttles, or hangs on, for some costs the others nothing.
func TestPartitionsThatAreThrottledOrHangDoNotLowerTheLimitForOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Batch = 1 })
		r.sink.write = func(ctx context.Context, batches []*sink.Batch) error {
			switch batches[0].Partition[0] {
			case 't':
				return sink.Throttle(errDown, time.Second)
			case 'h':
				return hang(ctx, batches)
			}
			time.Sleep(20 * time.Millisecond)
			return nil
		}
		r.start()
		for range 60 {
			for p := range 100 {
				r.store.produce(r.ns, fmt.Sprintf("p%d", p), 1, 0)
			}
			for p := range 10 {
				r.store.produce(r.ns, fmt.Sprintf("t%d", p), 1, 0)
				r.store.produce(r.ns, fmt.Sprintf("h%d", p), 1, 0)
			}
			time.Sleep(time.Second / 2)
		}
		if got := r.metrics().concurrency; r.value(got) < 50 {
			t.Errorf("%v Writes at once", r.value(got))
		}
		r.stop()
	})
}
