package job

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
)

func TestSchedulesAreCountedWhereTheyAre(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"embedded": "embedded:", "redis": "redis://" + redistest.Shared(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, url, func(p *Policy) { p.Shards = 3 })
			if n := testutil.CollectAndCount(scheduleMetrics(s), "spillway_account_schedules"); n > 0 {
				t.Error("there are counts before the first look")
			}
			ns := s.Namespace("mail")
			now, err := s.Clock(t.Context(), ns, "q")
			if err != nil {
				t.Fatal(err)
			}
			for i := range 9 {
				p := &PutSchedule{Namespace: ns, Queue: fmt.Sprint("q", i), Name: "s", Tag: "x", First: now + 1e6, Look: now + 1e6}
				if err := s.PutSchedule(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				sh := ns.shardAt(ns.ScheduleShard(p.Queue))
				late := map[int]int64{1: 20_000, 2: 9000, 3: 11_000}[i] // of them two are later than 10 s
				if late > 0 {
					s.backend.Background.ZAdd(t.Context(), sh.due, redis.Z{Score: float64(now - late), Member: "s " + p.Queue})
				}
				if i > 6 {
					if _, _, err := s.PauseSchedule(t.Context(), ns, p.Queue, "s", true); err != nil {
						t.Fatal(err)
					}
				}
			}
			startPromoter(t, s)
			redistest.Until(t, most, "all are counted", func() bool { return ns.ScheduleTotals().Known })
			err = testutil.CollectAndCompare(scheduleMetrics(s), strings.NewReader(`
# HELP spillway_account_schedules Schedules stored now, by state: active, or stopped, which is paused or ended; counted every 5 s, less often by a third process and more. The store's figure: the same in every process.
# TYPE spillway_account_schedules gauge
spillway_account_schedules{namespace="mail",state="active"} 7
spillway_account_schedules{namespace="mail",state="stopped"} 2
# HELP spillway_schedules_overdue Active schedules that should have fired 10 s ago, with their jitter, and did not; counted every 5 s, less often by a third process and more. The store's figure: the same in every process.
# TYPE spillway_schedules_overdue gauge
spillway_schedules_overdue{namespace="mail"} 2
`), "spillway_account_schedules", "spillway_schedules_overdue")
			if err != nil {
				t.Error(err)
			}
			if problems, err := testutil.CollectAndLint(scheduleMetrics(s)); err != nil || len(problems) > 0 {
				t.Errorf("lint: %v %v", problems, err)
			}
		})
	}
}

// The walks of package schedule hold these counts against the states.
func TestTicksThatDoNotFireAreAccounted(t *testing.T) {
	t.Parallel()
	runs := func(causes string) (r Runs) {
		for _, cause := range []byte(causes) {
			r.List = append(r.List, ScheduleRun{Cause: cause})
		}
		return r
	}
	for name, tt := range map[string]struct {
		firing Firing
		want   string
	}{
		"all fire":                         {Firing{Overlap: "allow", Left: -1, Runs: runs("cd"), Missed: 3, Fired: 2}, "fired 2, missed 3"},
		"of a pause":                       {Firing{Overlap: "allow", Left: -1, Paused: 4}, "paused 4"},
		"the last run goes on":             {Firing{Overlap: "skip", Left: -1, Runs: runs("dd")}, "overlapped 2"},
		"beside the first of them":         {Firing{Overlap: "skip", Left: -1, Runs: runs("dd"), Fired: 1}, "fired 1, overlapped 1"},
		"one waits":                        {Firing{Overlap: "buffer", Left: -1, Runs: runs("dd")}, "overlapped 1"},
		"one waits since before":           {Firing{Overlap: "buffer", Left: -1, Runs: runs("wd")}, "overlapped 1"},
		"the one that waits fires":         {Firing{Overlap: "buffer", Left: -1, Runs: runs("wdd"), Fired: 1}, "fired 1, overlapped 1"},
		"beyond max_runs there is no tick": {Firing{Overlap: "allow", Left: 1, Runs: runs("dd"), Fired: 1}, "fired 1"},
		"the one that waits is beyond":     {Firing{Overlap: "buffer", Left: 0, Runs: runs("w")}, "superseded 1"},
		"no room":                          {Firing{Overlap: "skip", Left: -1, Runs: runs("dd"), Missed: 1, Status: NoRoom}, "missed 1"},
		"the plan is too old":              {Firing{Overlap: "allow", Left: -1, Runs: runs("d"), Missed: 1, Status: Untimely}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := tt.firing
			f.Status = cmp.Or(f.Status, Fired)
			var totals scheduleTotals
			totals.account(&f)
			var got []string
			for i, name := range tickNames {
				if n := totals.ticks[i].Load(); n > 0 {
					got = append(got, fmt.Sprint(name, " ", n))
				}
			}
			if got := strings.Join(got, ", "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestARateThatCannotBeReadHoldsUpItsOwnScheduleAlone(t *testing.T) {
	t.Parallel()
	taken := 0
	take := TakeRate(func(_ context.Context, _, token string, jobs int) (func(int), time.Duration, error) {
		if token == "away" {
			return nil, 0, backend.ErrUnknown
		}
		taken += jobs
		return func(n int) { taken -= n }, 0, nil
	})
	ns := &Namespace{}
	away := &Firing{By: "away", Counts: 2, Next: 9000, Runs: Runs{List: []ScheduleRun{{Tick: 1000}, {Tick: 2000}}}}
	if refund, held := take.spend(t.Context(), ns, 5000, away); refund != nil || held != 2 || len(away.List) != 0 || away.Next != 1000 || away.Look != 6000 {
		t.Errorf("got %+v; want it due again in a second", away)
	}
	good := &Firing{By: "good", Overlap: "allow", Counts: 2, Runs: Runs{List: []ScheduleRun{{Tick: 1000}, {Tick: 2000}}}}
	if take.spend(t.Context(), ns, 5000, good); taken != 4 || len(good.List) != 2 {
		t.Errorf("%d taken for %+v", taken, good)
	}
}
