package schedule_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

// stored is schedules of a store whose clock stands still.
type stored struct {
	now  int64
	list []job.Schedule
	most int // that it reads; 0: all
}

func (s *stored) Now() (int64, bool) { return s.now, true }

func (s *stored) ScanSchedules(_ context.Context, _ *job.Namespace, _ string, most int, visit func([]job.Schedule) bool) (bool, error) {
	if s.most > 0 || len(s.list) > most {
		return false, nil
	}
	for page := range slices.Chunk(s.list, 3) {
		if !visit(page) {
			return false, nil
		}
	}
	return true, nil
}

func (s *stored) NextTicks(context.Context, *job.Namespace, string, time.Duration, int) ([]int64, error) {
	return []int64{7}, nil
}

// add stores a schedule that has fired so often, with its next tick after a time.
func (s *stored) add(t *testing.T, text string, after, fired int64) *schedule.Spec {
	t.Helper()
	spec := parse(t, text)
	s.list = append(s.list, job.Schedule{Spec: []byte(text),
		State: fmt.Sprintf("1 a tag %d 0 0 0 0 %d 0 0 0 0 0 0 0|", spec.Next(after), fired)})
	return spec
}

func (s *stored) forecast(t *testing.T, step time.Duration, n int) (counts []int64, by string) {
	t.Helper()
	counts, by, err := schedule.Forecast(t.Context(), s, nil, "", step, n)
	if err != nil {
		t.Fatal(err)
	}
	return counts, by
}

var forecastNow = time.Date(2026, 10, 24, 22, 17, 33, 0, time.UTC).UnixMilli()

// Every tick is in the step where Next puts it, over changes of clocks, to the end of schedules.
func TestAForecastCountsTheTicksThatNextTells(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	times := []string{`"every":"1s"`, `"every":"90s"`, `"every":"1h","from":"2026-10-24T22:17:33Z"`, `"every":"36h"`, `"cron":"*/5 * * * *"`,
		`"cron":"30 2 * * *","tz":"Europe/Berlin"`, `"cron":"@hourly","tz":"America/New_York"`, `"cron":"0 9 * * 1"`, `"at":"2026-10-25T03:00:00Z"`}
	for range 400 {
		s, step, n := &stored{now: forecastNow + r.Int64N(1000)}, time.Duration(1+r.IntN(1800))*time.Second, 1+r.IntN(50)
		want := make([]int64, n)
		for range 1 + r.IntN(5) {
			text, runs := times[r.IntN(len(times))], int64(1<<62)
			if r.IntN(3) == 0 {
				text += fmt.Sprintf(`,"until":%q`, time.UnixMilli(s.now+r.Int64N(2*step.Milliseconds()*int64(n))).UTC().Format(time.RFC3339Nano))
			}
			fired := r.Int64N(5)
			if r.IntN(3) == 0 {
				runs = 1 + r.Int64N(9)
				text += fmt.Sprintf(`,"max_runs":%d`, runs)
			}
			spec := s.add(t, "{"+text+"}", s.now, fired)
			left := runs - fired
			for at := spec.Next(s.now); at > 0 && at <= s.now+step.Milliseconds()*int64(n) && left > 0; at = spec.Next(at) {
				want[(at-s.now-1)/step.Milliseconds()]++
				left--
			}
		}
		if got, by := s.forecast(t, step, n); by != schedule.ByTicks || !slices.Equal(got, want) {
			t.Fatalf("step %v: %s\ngot  %v, %s\nwant %v", step, s.list, got, by, want)
		}
	}
}

// Those that are due count as the one that fires; and those of a schedule that is paused or ended do not.
func TestAForecastBeginsWithWhatIsDue(t *testing.T) {
	t.Parallel()
	s := &stored{now: forecastNow}
	s.add(t, `{"every":"1m"}`, s.now-600_000, 0)
	for _, state := range []string{"p", "e"} {
		s.list = append(s.list, job.Schedule{Spec: []byte(`{"every":"1m"}`), State: "1 " + state + " tag 1 0 0 0 0 0 0 0 0 0 0 0 0|"})
	}
	s.list = append(s.list, job.Schedule{Spec: []byte(`{`), State: "1 a tag 1 0 0 0 0 0 0 0 0 0 0 0 0|"}, job.Schedule{State: "foreign"})
	if got, _ := s.forecast(t, time.Minute, 3); !slices.Equal(got, []int64{2, 1, 1}) {
		t.Errorf("got %v", got)
	}
}

// Of many ticks the later ones are estimated, and of too many schedules only the next one is told.
func TestAForecastOfManyTicksEstimatesTheLaterOnes(t *testing.T) {
	t.Parallel()
	s := &stored{now: forecastNow}
	s.add(t, `{"cron":"* 8-19 * * *"}`, s.now, 0)
	got, by := s.forecast(t, 24*time.Hour, 30)
	total := int64(0)
	for _, n := range got {
		total += n
	}
	if by != schedule.ByEstimate || total < 30*720*8/10 || total > 30*720*12/10 {
		t.Errorf("%s: %d of %d", by, total, 30*720)
	}
	s.most = 1
	if got, by := s.forecast(t, time.Hour, 1); by != schedule.ByNext || got[0] != 7 {
		t.Errorf("got %v, %s", got, by)
	}
	s = &stored{now: forecastNow}
	for range 700 {
		s.add(t, `{"every":"1h","data":"`+string(slices.Repeat([]byte("x"), 30<<10))+`"}`, s.now, 0)
	}
	if _, by := s.forecast(t, time.Hour, 1); by != schedule.ByNext {
		t.Errorf("20 MiB of specifications: %s", by)
	}
}
