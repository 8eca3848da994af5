package guard

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// How the limit on concurrent Writes moves. The first three figures are those of
// Vector's adaptive request concurrency.
const (
	limitWeight    = 0.4 // of the latest interval in the moving averages
	limitDecrease  = 0.9
	limitTolerance = 2.5 // standard deviations by which Writes may be slower than before
	// minSlowdown is the least slowdown that counts, as a share of the mean, and
	// minSlowWrite the least time of a Write: what is quicker is not overloaded.
	minSlowdown  = 0.25
	minSlowWrite = 10 * time.Millisecond
	// An interval lasts as long as a Write takes, minLimitInterval at least, and until
	// it has minLimitAnswers. The first limitWarmUp of them only teach.
	minLimitInterval = 100 * time.Millisecond
	minLimitAnswers  = 8
	limitWarmUp      = 3
	// maxThrottled is the share of throttled Writes from which the limit falls.
	maxThrottled = 0.1
	// A Write that takes lendAfter times the mean, and minLendAfter at least, lends its
	// slot.
	lendAfter    = 4
	minLendAfter = 250 * time.Millisecond
)

// A limit bounds the concurrent Writes of a sink that sets no limit itself:
// by a tenth fewer when all slots are in use and Writes take longer than they did, or
// are throttled (then fewer than were in use); one more when they do not and all are in
// use. It begins with all slots, so it costs a sink
// that keeps up nothing.
//
// Only answers teach it. What fails or hangs is the business of the partition and of
// the breaker: a partition on which a sink hangs must not slow the others down. For
// the same reason a Write that lasts lends its slot to another.
type limit struct {
	slots   *Slots
	gauge   prometheus.Gauge
	reduced atomic.Bool // some slots are withdrawn

	mu    sync.Mutex
	limit int // slots in use, without those lent
	lent  int

	// of the present interval
	ends              time.Time
	took              time.Duration // all answered Writes together
	answers, throttle int
	wanted            bool // no slot was free
	used              int  // slots taken at once, at most

	// of the intervals before
	intervals      int
	mean, variance float64 // of a Write, in seconds
}

func newLimit(s *Slots, gauge prometheus.Gauge) *limit {
	gauge.Set(float64(s.Size()))
	return &limit{slots: s, gauge: gauge, limit: s.Size()}
}

// get is how many Writes may run at once, without those that last.
func (l *limit) get() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit
}

// answered learns from a Write that the sink answered.
func (l *limit) answered(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took += took
	l.answers++
	l.update()
}

// throttled learns from a Write that the sink throttled, for a partition whose Writes
// it had answered until then: one that it keeps throttling says nothing new.
func (l *limit) throttled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.throttle++
	l.update()
}

// update ends the interval when it is due; l.mu is held.
func (l *limit) update() {
	free := l.slots.Available()
	l.wanted, l.used = l.wanted || free == 0, max(l.used, l.limit+l.lent-free)
	now := time.Now()
	if now.Before(l.ends) || l.answers+l.throttle < minLimitAnswers {
		return
	}
	share := float64(l.throttle) / float64(l.answers+l.throttle)
	current := l.took.Seconds() / float64(max(l.answers, 1))
	slow := l.mean + max(limitTolerance*math.Sqrt(l.variance), minSlowdown*l.mean)
	learned := l.intervals >= limitWarmUp
	switch {
	case share >= maxThrottled, l.wanted && learned && l.answers > 0 &&
		current >= max(slow, minSlowWrite.Seconds()):
		l.move(max(1, int(limitDecrease*float64(min(l.limit, l.used)))))
	case l.wanted && l.answers > 0 && current <= max(l.mean, minSlowWrite.Seconds()) &&
		l.limit+l.lent < l.slots.Size():
		l.move(l.limit + 1)
	}
	if l.answers > 0 {
		l.learn(current)
	}
	l.ends = now.Add(max(minLimitInterval, time.Duration(l.mean*float64(time.Second))))
	l.took = 0
	l.answers = 0
	l.throttle = 0
	l.wanted = false
	l.used = 0
}

// learn takes the mean of an interval into the averages.
func (l *limit) learn(current float64) {
	if l.intervals++; l.intervals == 1 {
		l.mean = current
		return
	}
	diff := current - l.mean
	l.mean += limitWeight * diff
	l.variance = (1 - limitWeight) * (l.variance + limitWeight*diff*diff)
}

func (l *limit) move(to int) {
	if to < l.limit {
		l.slots.withdraw(l.limit - to)
	} else {
		l.slots.restore(to - l.limit)
	}
	l.limit = to
	l.reduced.Store(to < l.slots.Size())
	l.gauge.Set(float64(to))
}

// begin is told of a Write, and the func that it returns of the Write's end. While
// slots are withdrawn, a Write that lasts lends its own to another.
func (l *limit) begin() (end func()) {
	if !l.reduced.Load() {
		return func() {}
	}
	l.mu.Lock()
	patience := max(minLendAfter, time.Duration(lendAfter*l.mean*float64(time.Second)))
	l.mu.Unlock()
	var lent, ended bool // l.mu guards them
	timer := time.AfterFunc(patience, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if lent = !ended && l.limit+l.lent < l.slots.Size(); lent {
			l.lent++
			l.slots.restore(1)
		}
	})
	return func() {
		if timer.Stop() {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if ended = true; lent {
			l.lent--
			l.slots.withdraw(1)
		}
	}
}
