package adaptive

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-io/spillway/partition/clocktest"
)

// A server answers within 200 ms while no more than knee calls run. Beyond, a tenth more of them take
// half as long again, or it throttles them. No two take as long to the nanosecond: the clock of a
// bubble stands still while calls end and begin, so that a call which began just before the limit
// fell, throttled for it ran beside too many, would seem to have begun after.
type server struct {
	throttles bool

	mu            sync.Mutex
	knee, running int
	jitter        *rand.Rand
}

func (s *server) call() (throttled bool) {
	s.mu.Lock()
	s.running++
	took := 200 * time.Millisecond
	if beyond := s.running - s.knee; beyond > 0 {
		took += 5 * took * time.Duration(beyond) / time.Duration(s.knee)
		throttled = s.throttles
	}
	if throttled {
		took = time.Millisecond
	}
	took += time.Duration(s.jitter.Int64N(int64(time.Millisecond)))
	s.mu.Unlock()
	clocktest.Take(took)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	return throttled
}

func (s *server) move(knee int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.knee = knee
}

// use calls a server as often as the limit lets it, until stop is called.
func use(s *server, l *Limit) (stop func()) {
	var calls sync.WaitGroup
	ended, end := make(chan struct{}, l.max), make(chan struct{})
	calls.Go(func() {
		for running := 0; ; {
			for ; running < l.Get(); running++ {
				calls.Go(func() {
					began := time.Now()
					if s.call() {
						l.Overloaded(began)
					} else {
						l.Answered(began)
					}
					ended <- struct{}{}
				})
			}
			l.Wanted()
			select {
			case <-ended:
				running--
			case <-end:
				return
			}
		}
	})
	return func() { close(end); calls.Wait() }
}

// The knee is found within a fifth, from below at the start and from above when it moves down, and
// again within 30 s.
func TestLimitFindsTheKneeOfAServerAndFollowsIt(t *testing.T) {
	t.Parallel()
	for _, throttles := range []bool{false, true} {
		for _, knees := range [][]int{{20, 40, 20}, {60, 12, 60}, {7, 50, 11}} {
			t.Run(fmt.Sprintf("throttles %v, %v", throttles, knees), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s, l := &server{throttles: throttles, jitter: rand.New(rand.NewPCG(1, 2))}, New(1, 1, 200, 300*time.Millisecond)
					stop := func() {}
					for i, knee := range knees {
						if s.move(knee); i == 0 {
							stop = use(s, l)
							clocktest.Pass(30 * time.Second) // it begins with one call
						}
						clocktest.Pass(30 * time.Second)
						for range 300 {
							clocktest.Pass(100 * time.Millisecond)
							if got := l.Get(); 10*got < 8*knee || 10*got > 12*knee {
								t.Errorf("%d calls at once, and the knee is at %d", got, knee)
								break
							}
						}
					}
					stop()
				})
			})
		}
	}
}

func TestLimitStaysInItsBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New(4, 4, 16, time.Second)
		feed := func(call func(began time.Time)) {
			for range 1000 {
				clocktest.Take(50 * time.Millisecond)
				l.Wanted()
				call(time.Now())
			}
		}
		for range 2 {
			if feed(l.Answered); l.Get() != 16 {
				t.Errorf("%d of 16 calls at once, though all are quick", l.Get())
			}
			if feed(l.Overloaded); l.Get() != 4 {
				t.Errorf("%d calls at once, and 4 is the least", l.Get())
			}
		}
	})
}

func TestLimitRisesOnlyWhenMoreCallsAreWanted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New(4, 4, 16, time.Second)
		for range 1000 {
			clocktest.Pass(50 * time.Millisecond)
			l.Answered(time.Now())
		}
		if got := l.Get(); got != 4 {
			t.Errorf("%d calls at once, and never more were wanted", got)
		}
	})
}

// All calls of a moment may be throttled, or time out, for one reason.
func TestLimitFallsOnceForManyCallsThatFailTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 1, 100, time.Second)
		l.limit = 100
		began := time.Now()
		clocktest.Pass(10 * time.Second)
		for range 100 {
			l.Overloaded(began)
		}
		if got := l.Get(); got != 80 {
			t.Errorf("%d calls at once after one outage, want 80", got)
		}
		for range 100 {
			l.Overloaded(time.Now())
		}
		if got := l.Get(); got != 80 {
			t.Errorf("%d calls at once, within the same window, want 80", got)
		}
	})
}

// A tenth of the calls may be slow, and a window with few calls goes on.
func TestLimitFallsByTheSlowestTenthOfTheCalls(t *testing.T) {
	t.Parallel()
	for slow, want := range map[int]int{1: 11, 2: 8} {
		synctest.Test(t, func(t *testing.T) {
			l := New(1, 1, 100, time.Second)
			l.limit = 10
			clocktest.Pass(time.Minute)
			l.Wanted()
			for i := range 10 {
				if l.Get() != 10 {
					t.Errorf("it moves after %d calls", i)
				}
				began := time.Now()
				if i < slow {
					began = began.Add(-2 * time.Second)
				}
				l.Answered(began)
			}
			if got := l.Get(); got != want {
				t.Errorf("%d calls at once after %d slow ones of 10, want %d", got, slow, want)
			}
		})
	}
}
