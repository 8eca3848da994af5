package partition

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
)

// sleeper is an alarm on a clock that reads 1000 ms when the test begins.
type sleeper struct {
	alarm alarm
	clock backend.Clock
	began time.Time
}

func newSleeper() *sleeper {
	s := &sleeper{began: time.Now()}
	s.alarm.wake = make(chan struct{}, 1)
	s.clock.Observe(s.began, s.began, 1000)
	return s
}

// sleep returns how long a sleep took, rounded up to ms: the clock is exact to half a ms.
func (s *sleeper) sleep(ctx context.Context, due int64, most time.Duration) time.Duration {
	began := time.Now()
	s.alarm.sleep(ctx, &s.clock, due, most)
	return time.Since(began).Round(time.Millisecond)
}

func (s *sleeper) after(d time.Duration, f func()) { time.AfterFunc(d, f) }

func TestSleep(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		due    int64
		most   time.Duration
		before func(*sleeper)
		want   time.Duration
	}{
		"until due":                        {due: 1300, want: 300 * time.Millisecond},
		"not when it is due":               {due: 1000},
		"not when it was due":              {due: 1},
		"at most so long":                  {due: 99_000, most: 50 * time.Millisecond, want: 50 * time.Millisecond},
		"until something earlier is due":   {due: 9000, before: func(s *sleeper) { s.after(100*time.Millisecond, func() { s.alarm.ring(1250) }) }, want: 250 * time.Millisecond},
		"no longer when it is due already": {due: 9000, before: func(s *sleeper) { s.after(100*time.Millisecond, func() { s.alarm.ring(1100) }) }, want: 100 * time.Millisecond},
		"on when something later is due":   {due: 1300, before: func(s *sleeper) { s.after(100*time.Millisecond, func() { s.alarm.ring(8000) }) }, want: 300 * time.Millisecond},
		"until the earliest of several": {due: 9000, before: func(s *sleeper) {
			s.after(10*time.Millisecond, func() { s.alarm.ring(1500); s.alarm.ring(1200); s.alarm.ring(1400) })
		}, want: 200 * time.Millisecond},
		"until what rang before it":         {due: 9000, before: func(s *sleeper) { s.alarm.ring(1070) }, want: 70 * time.Millisecond},
		"on when what rang was reset":       {due: 1300, before: func(s *sleeper) { s.alarm.ring(1070); s.alarm.reset(0) }, want: 300 * time.Millisecond},
		"longer for what is left to others": {due: 9000, before: func(s *sleeper) { s.alarm.reset(200); s.alarm.ring(1100) }, want: 300 * time.Millisecond},
		"on after an old wake-up":           {due: 1300, before: func(s *sleeper) { s.alarm.wake <- struct{}{} }, want: 300 * time.Millisecond},
		"until a clock that jumped":         {due: 1300, before: func(s *sleeper) { s.clock.Observe(time.Now(), time.Now(), 1200) }, want: 100 * time.Millisecond},
		"at once when due long ago was":     {due: 9000, before: func(s *sleeper) { s.alarm.ring(10) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSleeper()
				if row.before != nil {
					row.before(s)
				}
				most := row.most
				if most == 0 {
					most = time.Minute
				}
				if got := s.sleep(t.Context(), row.due, most); got < row.want-time.Millisecond || got > row.want+time.Millisecond {
					t.Errorf("slept %v, want %v", got, row.want)
				}
				synctest.Wait()
			})
		})
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSleeper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		if got := s.sleep(ctx, 9000, time.Minute); got != 30*time.Millisecond {
			t.Errorf("slept %v, want 30ms", got)
		}
		if got := s.sleep(ctx, 9000, time.Minute); got != 0 {
			t.Errorf("slept %v after the end, want 0s", got)
		}
	})
}

// A loop that asks, sleeps and asks again misses nothing, whenever it rings.
func TestSleepMissesNoRing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSleeper()
		for i := range 200 {
			s.alarm.reset(0)
			due, _ := s.clock.Now()
			s.after(time.Duration(i%7)*time.Millisecond, func() { s.alarm.ring(due) })
			if got := s.sleep(t.Context(), due+60_000, time.Minute); got > 8*time.Millisecond {
				t.Fatalf("round %d: slept %v", i, got)
			}
		}
	})
}

// Without a clock it is unknown what is due, and a caller that asks again and again
// must not spin.
func TestSleepWithoutAClockTakesItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{}
		s.alarm.wake = make(chan struct{}, 1)
		if got := s.sleep(t.Context(), 1_763_629_675_100, time.Second); got != time.Second {
			t.Errorf("slept %v, want 1s", got)
		}
	})
}

func TestAPartitionSettledBetweenTheReadsOfDueIsListedOnce(t *testing.T) {
	t.Parallel()
	due := []string{"a", "b"}
	for later, want := range map[string][]DuePartition{
		"a": {{"a", 100, false}, {"b", 100, false}},
		"c": {{"a", 100, false}, {"b", 100, false}, {"c", 105, false}},
	} {
		if got := dueList(due, []redis.Z{{Member: later, Score: 105}}, 100, 0, 10); !slices.Equal(got, want) {
			t.Errorf("%s comes later: got %v, want %v", later, got, want)
		}
	}
	if got := dueList(due, []redis.Z{{Member: "c", Score: 105}}, 100, 0, 2); len(got) != 2 {
		t.Errorf("got %v, want two at most", got)
	}
}
