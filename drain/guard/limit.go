package guard

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/partition/adaptive"
)

// A limit bounds the concurrent Writes of a sink that sets no limit itself: a fifth fewer at most once a
// second while it throttles some, and a tenth more a second while it throttles hardly any and all slots
// are in use. It begins with all slots, so it costs a sink that keeps up nothing.
//
// A Write that takes long, fails or hangs says nothing about how many the sink takes: that is the business
// of the partition and of the breaker, and a partition on which a sink hangs must not slow the others down.
type limit struct {
	slots *Slots
	gauge prometheus.Gauge

	mu       sync.Mutex
	adaptive *adaptive.Limit
	inUse    int // slots that are not withdrawn
}

func newLimit(s *Slots, gauge prometheus.Gauge) *limit {
	gauge.Set(float64(s.Size()))
	return &limit{
		slots:    s,
		gauge:    gauge,
		adaptive: adaptive.New(s.Size(), 1, s.Size(), math.MaxInt64),
		inUse:    s.Size(),
	}
}

// get is how many Writes may run at once.
func (l *limit) get() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse
}

// answered learns from a Write that began then, and that the sink answered now.
func (l *limit) answered(began time.Time) {
	if l.slots.Available() == 0 {
		l.adaptive.Wanted()
	}
	l.adaptive.Answered(began)
	l.follow()
}

// throttled learns from a Write that began then, and that the sink throttled, for a partition whose
// Writes it had answered until then: one that it keeps throttling says nothing new.
func (l *limit) throttled(began time.Time) {
	l.adaptive.Overloaded(began)
	l.follow()
}

// follow withdraws slots or restores them, as many as the limit says.
func (l *limit) follow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	to := l.adaptive.Get()
	if to < l.inUse {
		l.slots.withdraw(l.inUse - to)
	} else {
		l.slots.restore(to - l.inUse)
	}
	l.inUse = to
	l.gauge.Set(float64(to))
}
