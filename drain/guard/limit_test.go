package guard

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/partition/clocktest"
)

func newTestLimit(n int) (*limit, *Slots) {
	s := NewSlots(n)
	return newLimit(s, prometheus.NewGauge(prometheus.GaugeOpts{Name: "limit"})), s
}

// answer makes the limit see Writes of a duration for a time, with all slots taken.
func answer(l *limit, each, lasting time.Duration) {
	for end := time.Now().Add(lasting); time.Now().Before(end); clocktest.Pass(5 * time.Millisecond) {
		n := l.slots.More(l.slots.Size())
		l.answered(each)
		l.slots.Put(n)
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
		if low > 40 || s.Available() != low {
			t.Errorf("%d Writes, %d slots, after they slowed down", low, s.Available())
		}
		answer(l, 50*time.Millisecond, 20*time.Second)
		if got := l.get(); got != 64 || s.Available() != 64 {
			t.Errorf("%d Writes, %d slots, after they were quick again", got, s.Available())
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
		n := s.More(10)
		for range minLimitAnswers {
			l.throttled()
		}
		s.Put(n)
		if l.get() != 9 || s.Available() != 9 {
			t.Errorf("%d Writes, %d slots", l.get(), s.Available())
		}
	})
}

func TestLimitFallsToOneWhenEverythingIsThrottledAndNoFurther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, s := newTestLimit(64)
		for range 60 * 100 {
			l.throttled()
			clocktest.Pass(10 * time.Millisecond)
		}
		if l.get() != 1 || s.Available() != 1 {
			t.Errorf("%d Writes, %d slots", l.get(), s.Available())
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
		if s.More(4) != 1 {
			t.Fatal("more than one slot")
		}
		end := l.begin()
		clocktest.Pass(minLendAfter - time.Millisecond)
		if s.Available() != 0 {
			t.Error("lent too early")
		}
		clocktest.Pass(2 * time.Millisecond)
		if s.More(4) != 1 {
			t.Fatal("no slot was lent")
		}
		endOther := l.begin()
		end()
		s.Put(1) // the lent one is taken back
		if s.Available() != 0 {
			t.Error("two Writes run")
		}
		endOther()
		s.Put(1)
		if s.Available() != 1 {
			t.Errorf("%d slots at the end", s.Available())
		}
	})
}

func TestSlotsThatAreTakenAreWithdrawnWhenTheyComeBack(t *testing.T) {
	t.Parallel()
	s := NewSlots(8)
	taken := s.More(6)
	s.withdraw(5)
	if s.Available() != 0 {
		t.Errorf("%d free", s.Available())
	}
	s.restore(1)
	s.Put(taken)
	if s.Available() != 4 {
		t.Errorf("%d free, want 4", s.Available())
	}
	s.restore(4)
	if s.Available() != s.Size() {
		t.Errorf("%d free, want all", s.Available())
	}
}
