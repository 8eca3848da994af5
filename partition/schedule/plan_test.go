package schedule_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

func parse(t *testing.T, text string) *schedule.Spec {
	t.Helper()
	s, err := schedule.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A schedule of every 10 s, whose next tick is at 0, is looked at 65 s later: the ticks 0 to 60 are due.
func TestLateTicksBecomeWhatTheSpecificationSays(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC).UnixMilli()
	for text, want := range map[string]string{
		`"grace":"0s"`:                 "c60 missed 6",
		`"grace":"4s"`:                 "c60 missed 6",
		`"grace":"5s"`:                 "d60 missed 6",
		`"grace":"15s"`:                "d50 d60 missed 5",
		`"grace":"2m"`:                 "d0 d10 d20 d30 d40 d50 d60",
		`"grace":"0s","missed":"all"`:  "c0 c10 c20 c30 c40 c50 c60",
		`"grace":"20s","missed":"all"`: "c0 c10 c20 c30 c40 d50 d60",
		`"grace":"0s","missed":"all","window":"30s"`:  "c40 c50 c60 missed 4",
		`"grace":"0s","missed":"skip"`:                "missed 7",
		`"grace":"15s","missed":"skip"`:               "d50 d60 missed 5",
		`"grace":"0s","window":"4s"`:                  "missed 7",
		`"grace":"0s","window":"1m"`:                  "c60 missed 6",
		`"grace":"2m","until":"2026-11-23T12:00:20Z"`: "d0 d10 d20 ends",
		`"grace":"2m","shards":400`:                   "d0 d10 next 20", // 1,000 jobs a call
		`"grace":"0s","shards":400`:                   "c60 missed 6",
	} {
		s := parse(t, `{"every":"10s",`+text+`}`)
		f := schedule.Plan(s, "mail", "q", "s", "", &schedule.State{Flag: 'a', Next: base}, base+65_000)
		var got []string
		for _, run := range f.List {
			got = append(got, fmt.Sprintf("%c%d", run.Cause, (run.Tick-base)/1000))
		}
		if f.Missed > 0 {
			got = append(got, fmt.Sprint("missed ", f.Missed))
		}
		switch next := (f.Next - base) / 1000; {
		case f.Next == 0:
			got = append(got, "ends")
		case next != 70:
			got = append(got, fmt.Sprint("next ", next))
		case f.Look != f.Next:
			t.Errorf("%s: the next look is at %d", text, f.Look-base)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %s, want %s", text, strings.Join(got, " "), want)
		}
	}
}

func TestTicksOfAPauseCountAsPausedAndAWaitingOneRunsFirst(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC).UnixMilli()
	s := parse(t, `{"every":"10s","max_runs":5,"overlap":"buffer"}`)
	state := &schedule.State{Flag: 'a', Next: base, Till: base + 20_000, Waiting: base - 10_000, Ticks: schedule.Ticks{Fired: 3, Waiting: 1}}
	f := schedule.Plan(s, "mail", "q", "s", "", state, base+31_000)
	if len(f.List) != 2 || f.List[0].Cause != 'w' || f.List[0].Tick != base-10_000 || f.List[1].Tick != base+30_000 || f.Paused != 3 || f.Left != 2 || f.Overlap != "buffer" {
		t.Errorf("got %+v", f)
	}
}

func TestJitterIsTheSameEverywhereAndBeforeTheNextTick(t *testing.T) {
	t.Parallel()
	s, differ := parse(t, `{"every":"10s","jitter":"1m"}`), false
	base := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC).UnixMilli()
	for tick := base; tick < base+1_000_000; tick += 10_000 {
		at := s.Fires("mail", "q", "s", tick)
		if at < tick || at >= tick+10_000 || at != parse(t, `{"every":"10s","jitter":"1m"}`).Fires("mail", "q", "s", tick) {
			t.Fatalf("the tick %d fires at %d", tick, at)
		}
		differ = differ || at-tick != s.Fires("mail", "q", "other", tick)-tick
	}
	if !differ {
		t.Error("two schedules have one jitter")
	}
}

// Redis's clock steps back behind a tick that fired, and a deploy puts another specification.
func TestAPutBehindAStepOfTheClockRepeatsNoTick(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	addr := redistest.Start(t).Addr
	for back, first := range map[time.Duration]time.Duration{
		5 * time.Second: 15 * time.Second,
		23 * time.Hour:  15*time.Second - 23*time.Hour, // before there was a schedule: nothing had fired
		48 * time.Hour:  15*time.Second - 48*time.Hour,
	} {
		m, ns, closed := openRedis(t, addr, 0, false)
		t.Cleanup(closed)
		put := func(text string) *job.PutSchedule {
			t.Helper()
			p, err := schedule.Put(t.Context(), m, ns, queue, "daily", parse(t, text), 0)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		m.SetNow(base.Add(-5 * time.Second))
		put(`{"every":"10s"}`)
		m.SetNow(base.Add(10 * time.Second))
		now, list, _ := m.DueSchedules(t.Context(), ns, 0, 0, 1)
		state, _ := schedule.ReadState(list[0].State)
		f := schedule.Plan(parse(t, `{"every":"10s"}`), "mail", queue, "daily", list[0].State, &state, now)
		if _, err := m.Fire(t.Context(), ns, 0, now, []*job.Firing{f}); err != nil || f.Fired != 2 {
			t.Fatalf("%d runs: %v", f.Fired, err)
		}
		m.SetNow(base.Add(10*time.Second - back))
		if p := put(`{"every":"5s"}`); p.First != base.Add(first).UnixMilli() {
			t.Errorf("%v back: the first tick is %s, want %v", back, schedule.TickText(p.First), first)
		}
	}
}

// A run that has to wait, for the run before or for room, takes nothing of the rate of its token: neither each second
// that it waits nor each tick that it overlaps.
func TestARateIsTakenOnlyForRunsThatArePublished(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	addr := redistest.Start(t).Addr
	db := 0
	for overlap, want := range map[string]struct{ taken, published int }{"buffer": {2, 2}, "skip": {2, 2}, "allow": {3, 3}} {
		t.Run(overlap, func(t *testing.T) {
			p := job.DefaultPolicy()
			p.MaxJobs = 3
			taken := 0
			m, ns, closed := openWith(t, addr, db, false, p, func(_ context.Context, _, token string, jobs int) (func(int), time.Duration, error) {
				if taken += jobs; token != "crm" {
					t.Errorf("the rate of %q is taken", token)
				}
				return func(n int) {
					if n > 0 {
						t.Errorf("%d jobs were taken for nothing", n)
					}
				}, 0, nil
			})
			db++
			t.Cleanup(closed)
			m.SetNow(base)
			spec := parse(t, `{"every":"1s","overlap":"`+overlap+`"}`)
			spec.By = "crm"
			if _, err := schedule.Put(t.Context(), m, ns, queue, "s", spec, 0); err != nil {
				t.Fatal(err)
			}
			f := schedule.NewFirer(m.Store, prometheus.NewRegistry(), zap.NewNop())
			lane := m.NewLane()
			for second := range 40 {
				m.SetNow(base.Add(time.Duration(second) * time.Second))
				f.Work(t.Context(), job.DueShard{Namespace: ns})
				if second != 20 || overlap == "allow" {
					continue
				}
				c := &job.Claim{Namespace: ns, Queues: []string{queue}, TTR: time.Hour, Count: 1}
				m.Run(t.Context(), lane, &job.Batch{Claims: []*job.Claim{c}})
				m.Run(t.Context(), lane, &job.Batch{Acks: []*job.Ack{{Namespace: ns, Queue: queue, Ref: c.Jobs[0].Ref}}})
			}
			if l, err := m.Ledger(t.Context(), ns); err != nil || taken != want.taken || l.Published != int64(want.published) {
				t.Errorf("%d jobs were taken and %d published, want %+v: %v", taken, l.Published, want, err)
			}
		})
	}
}

// Neither a pause nor a jitter makes a tick vanish when somebody puts another specification.
func TestAPutAccountsForTicksOfAPauseAndOfAJitter(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	addr := redistest.Start(t).Addr
	for _, paused := range []bool{true, false} {
		m, ns, closed := openRedis(t, addr, 0, false)
		t.Cleanup(closed)
		m.SetNow(base)
		put := func(text string) {
			t.Helper()
			if _, err := schedule.Put(t.Context(), m, ns, queue, "daily", parse(t, text), 0); err != nil {
				t.Fatal(err)
			}
		}
		put(`{"every":"1h","jitter":"50m"}`)
		if paused {
			if _, _, err := m.PauseSchedule(t.Context(), ns, queue, "daily", true); err != nil {
				t.Fatal(err)
			}
		}
		m.SetNow(base.Add(time.Hour + time.Second)) // the jitter of this tick is longer
		put(`{"every":"1h"}`)
		found, err := m.GetSchedule(t.Context(), ns, queue, "daily")
		if err != nil {
			t.Fatal(err)
		}
		state, _ := schedule.ReadState(found.State)
		want := schedule.Ticks{Fired: 1}
		if paused {
			want = schedule.Ticks{Paused: 1}
		}
		if state.Ticks != want {
			t.Errorf("paused %v: got %+v, want %+v", paused, state.Ticks, want)
		}
	}
}

// What deploy/SCHEDULES.md says of the two nights in which Berlin changes its clocks.
func TestTheTwoNightsOfTheYear(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cron, from, want string }{
		{"30 2 * * *", "2026-03-29T00:15:00Z", "29T03:00:00+02:00 30T02:30:00+02:00"},
		{"30 2 * * *", "2026-10-24T23:45:00Z", "25T02:30:00+02:00 26T02:30:00+01:00"},
		{"*/30 * * * *", "2026-03-29T00:15:00Z", "29T01:30:00+01:00 29T03:00:00+02:00"},
		{"*/30 * * * *", "2026-10-24T23:45:00Z", "25T02:00:00+02:00 25T02:30:00+02:00 25T02:00:00+01:00 25T02:30:00+01:00"},
	} {
		from, err := time.Parse(time.RFC3339, c.from)
		if err != nil {
			t.Fatal(err)
		}
		got := parse(t, `{"cron":"`+c.cron+`","tz":"Europe/Berlin"}`).Times(from, len(strings.Fields(c.want)))
		for i := range got {
			got[i] = got[i][len("2026-03-"):]
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s from %s: got %v, want %s", c.cron, c.from, got, c.want)
		}
	}
}

// What the door takes has to be readable once it is stored: a schedule that is not never fires.
func TestWhatIsStoredOfAScheduleCanBeRead(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]string{
		"bytes that HTML escapes": "<", "a control character": `\u0001`, "no UTF-8": "\xff", "a line separator": "\u2028", "white space": " ",
	} {
		for _, field := range []string{`"data":"%s"`, `"attributes":{"a":"%s"}`} {
			t.Run(name+" in "+field, func(t *testing.T) {
				t.Parallel()
				text := func(n int) []byte {
					return fmt.Appendf(nil, `{"every":"1h",`+field+`,"jitter":"60s"}`, strings.Repeat(fill, n))
				}
				for n := schedule.MaxSpec / len(fill); n > 0; n -= 1 + n/9 {
					checkStored(t, text(n))
				}
				if _, err := schedule.Parse(text(schedule.MaxSpec / 10 / len(fill))); err != nil {
					t.Errorf("a tenth of the bound: %v", err)
				}
			})
		}
	}
}

// checkStored checks a specification that the door takes.
func checkStored(t *testing.T, text []byte) {
	t.Helper()
	s, err := schedule.Parse(text)
	if err != nil {
		return
	}
	stored := s.JSON()
	again, err := schedule.Parse(stored)
	if err != nil || len(stored) > schedule.MaxSpec || !bytes.Equal(again.JSON(), stored) {
		t.Fatalf("%d bytes became %d, which read: %v", len(text), len(stored), err)
	}
}

func FuzzWhatIsStoredOfAScheduleCanBeRead(f *testing.F) {
	f.Add([]byte(`{"cron":"0 3 * * *","tz":"Europe/Berlin","data":{"a":"<"},"attributes":{"b":"\u2028"},"grace":"1m"}`))
	f.Add([]byte(`{"at":"2030-01-02T03:04:05.678901234Z","data_base64":"AAE=","until":"2031-01-01T00:00:00+14:00"}`))
	f.Fuzz(checkStored)
}
