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
	for end := time.Now().Add(lasting); time.Now().Before(end); {
		n, began := l.slots.More(l.slots.Size()), time.Now()
		clocktest.Pass(each)
		l.answered(began)
		l.slots.Put(n)
	}
}

func TestLimitFallsWhileTheSinkThrottlesAndRecovers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, s := newTestLimit(64)
		for range 5 {
			clocktest.Pass(time.Second)
			l.throttled(time.Now())
		}
		low := l.get()
		if low > 32 || s.Available() != low {
			t.Errorf("%d Writes, %d slots, after five seconds of throttling", low, s.Available())
		}
		answer(l, 50*time.Millisecond, 30*time.Second)
		if got := l.get(); got != 64 || s.Available() != 64 {
			t.Errorf("%d Writes, %d slots, once it took all again", got, s.Available())
		}
	})
}

func TestLimitIgnoresHowLongWritesTake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, _ := newTestLimit(64)
		for i := range 20 {
			answer(l, time.Duration(1+i)*100*time.Millisecond, 2*time.Second)
		}
		if got := l.get(); got != 64 {
			t.Errorf("%d Writes", got)
		}
	})
}

func TestLimitFallsToOneWhenEverythingIsThrottledAndNoFurther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, s := newTestLimit(64)
		for range 60 * 100 {
			l.throttled(time.Now())
			clocktest.Pass(10 * time.Millisecond)
		}
		if l.get() != 1 || s.Available() != 1 {
			t.Errorf("%d Writes, %d slots", l.get(), s.Available())
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
