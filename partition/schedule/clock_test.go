package schedule_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
	"github.com/spillway-io/spillway/partition/schedule/cron"
)

// A site is the firers of several processes on a redis-server whose clock the test sets.
type site struct {
	*onRedis
	t        *testing.T
	ns       *job.Namespace
	lane     *job.Lane
	now      time.Time
	firers   []*schedule.Firer
	gathered []prometheus.Gatherer
	specs    map[string]*schedule.Spec
	first    map[string]int64           // tick
	fired    map[string]map[string]bool // by schedule and tick
	atOnce   map[string]bool            // those that were edited: a put does not wait for the jitter
}

// newSite has a firer for each tzdata.
func newSite(t *testing.T, addr string, db int, now time.Time, zones ...func(string) (*time.Location, error)) *site {
	p := job.DefaultPolicy()
	p.MaxJobs = 100_000
	s := &site{
		t:      t,
		now:    now,
		specs:  map[string]*schedule.Spec{},
		first:  map[string]int64{},
		fired:  map[string]map[string]bool{},
		atOnce: map[string]bool{},
	}
	var closed func()
	s.onRedis, s.ns, closed = openWith(t, addr, db, false, p, nil)
	t.Cleanup(closed)
	s.lane = s.NewLane()
	for _, zone := range zones {
		reg := prometheus.NewRegistry()
		f := schedule.NewFirer(s.Store, reg, zap.NewNop())
		f.KnowZones(zone)
		s.firers, s.gathered = append(s.firers, f), append(s.gathered, reg)
	}
	s.SetNow(now)
	return s
}

// put makes a schedule, or replaces its specification by one with the same ticks.
func (s *site) put(name, text string, zone func(string) (*time.Location, error)) {
	s.t.Helper()
	spec, err := schedule.ParseIn([]byte(text), zone)
	if err != nil {
		s.t.Fatal(err)
	}
	p, err := schedule.Put(s.t.Context(), s.Store, s.ns, queue, name, spec, 0)
	if err != nil {
		s.t.Fatalf("put %s %s at %s: %v", name, text, s.now, err)
	}
	if s.specs[name] == nil {
		s.first[name], s.fired[name] = p.First, map[string]bool{}
	} else {
		s.atOnce[name] = true
		s.first[name] = min(s.first[name], p.First) // the clock went back behind its first
	}
	s.specs[name] = spec
	s.work()
}

// step sets the clock, and lets each process fire.
func (s *site) step(d time.Duration) {
	s.now = s.now.Add(d)
	s.SetNow(s.now)
	for i := range s.firers {
		s.firers[(i+s.now.Second())%len(s.firers)].Work(s.t.Context(), job.DueShard{Namespace: s.ns})
	}
	s.work()
}

// pass lets time pass.
func (s *site) pass(d, each time.Duration) {
	for ; d > 0; d -= each {
		s.step(each)
	}
}

// work does all jobs: none is of a tick that had one before, and none is early.
func (s *site) work() {
	s.t.Helper()
	for more := true; more; {
		c := &job.Claim{Namespace: s.ns, Queues: []string{queue}, TTR: time.Hour, Count: 1000}
		s.Run(s.t.Context(), s.lane, &job.Batch{Claims: []*job.Claim{c}})
		if c.Err != nil {
			s.t.Fatal(c.Err)
		}
		b := &job.Batch{}
		for _, j := range c.Jobs {
			b.Acks = append(b.Acks, &job.Ack{Namespace: s.ns, Queue: queue, Ref: j.Ref})
			var a map[string]string
			tick, err := time.Time{}, json.Unmarshal(j.Attributes, &a)
			if err == nil {
				tick, err = time.Parse(time.RFC3339, a["tick"])
			}
			name, fires := a["schedule"], tick.UnixMilli()
			if err == nil && !s.atOnce[name] {
				fires = s.specs[name].Fires("mail", queue, name, fires)
			}
			if err != nil || fires > s.now.UnixMilli() {
				s.t.Errorf("%s of %s was fired at %s: %v", name, a["tick"], s.now, err)
			}
			if s.fired[name][a["tick"]] {
				s.t.Errorf("%s was fired twice, again at %s", name+" "+a["tick"], s.now)
			}
			s.fired[name][a["tick"]] = true
		}
		s.Run(s.t.Context(), s.lane, b)
		more = len(c.Jobs) > 0
	}
}

// state is that of a schedule, whose account holds what was fired.
func (s *site) state(name string) schedule.State {
	s.t.Helper()
	found, err := s.GetSchedule(s.t.Context(), s.ns, queue, name)
	state, ok := schedule.ReadState(found.State)
	if err != nil || !ok {
		s.t.Fatalf("%s: %v", name, err)
	}
	if state.Ticks.Fired != int64(len(s.fired[name])) {
		s.t.Errorf("%s: %d ticks had jobs, and the account is %+v", name, len(s.fired[name]), state.Ticks)
	}
	return state
}

// account holds the account of each schedule against its times.
func (s *site) account() {
	s.t.Helper()
	for name, spec := range s.specs {
		state, ticks := s.state(name), int64(0)
		for tick := s.first[name]; tick > 0 && tick != state.Next; tick = spec.Next(tick) {
			ticks++
		}
		if state.Ticks.Total() != ticks || state.Next > 0 && state.Next <= s.now.UnixMilli() && spec.Jitter == 0 {
			s.t.Errorf("%s at %s: %d ticks until %s, and the account is %+v", name, s.now, ticks, schedule.TickText(state.Next), state.Ticks)
		}
	}
	if residual, err := s.Audit(s.t.Context(), s.ns); err != nil || residual != 0 {
		s.t.Errorf("residual %d: %v", residual, err)
	}
}

// Redis's clock steps. Nothing fires twice, nothing early by the new clock, and each tick is accounted for. After a step back
// what has fired waits until the clock is there again.
func TestNoStepOfTheClockFiresATickTwiceOrEarly(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr
	for i, step := range []time.Duration{
		5 * time.Second, -5 * time.Second, time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour,
	} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, addr, i, time.Date(2026, 10, 24, 23, 58, 30, 250e6, time.UTC), cron.Zone, cron.Zone)
			specs := map[string]string{
				"second":   `"every":"1s"`,
				"jitter":   `"every":"7s","jitter":"5s"`,
				"all":      `"every":"20s","missed":"all"`,
				"window":   `"every":"10s","missed":"all","window":"10m"`,
				"skip":     `"every":"15s","missed":"skip","grace":"2s"`,
				"buffer":   `"every":"5s","overlap":"buffer"`,
				"minute":   `"cron":"* * * * *"`,
				"midnight": `"cron":"0 2 * * *","tz":"Europe/Berlin"`, // an hour before the clock of that zone goes back
				"once":     `"at":"2026-10-25T00:00:00Z"`,
			}
			for name, spec := range specs {
				s.put(name, "{"+spec+"}", cron.Zone)
			}
			s.pass(100*time.Second, time.Second)

			// One process has a plan in its hands.
			s.now = s.now.Add(time.Second)
			s.SetNow(s.now)
			made, due, err := s.DueSchedules(t.Context(), s.ns, 0, 0, 10)
			var plan []*job.Firing
			for _, d := range due {
				state, _ := schedule.ReadState(d.State)
				if d.At <= made {
					plan = append(plan, schedule.Plan(s.specs[d.Name], "mail", queue, d.Name, d.State, &state, made))
				}
			}
			if err != nil || len(plan) == 0 {
				t.Fatalf("%d schedules are due: %v", len(plan), err)
			}
			s.now = s.now.Add(step)
			s.SetNow(s.now)
			if _, err := s.Store.Fire(t.Context(), s.ns, 0, made, plan); err != nil {
				t.Fatal(err)
			}
			for _, f := range plan {
				if valid := step == 5*time.Second; valid != (f.Status == job.Fired) || !valid && f.Status != job.Untimely {
					t.Errorf("%s: a plan from before the step ends as %d", f.Name, f.Status)
				}
			}
			s.work()
			s.pass(10*time.Second, time.Second)
			for _, name := range []string{"second", "minute", "buffer", "window"} { // an edit does not forget what has fired
				s.put(name, "{"+specs[name]+`,"tries":3}`, cron.Zone)
			}
			s.put("new", `{"every":"1s","data":1}`, cron.Zone)
			s.pass(10*time.Second, time.Second)
			if fired := len(s.fired["new"]); fired != 10 {
				t.Errorf("a schedule that was put after the step fired %d times in 10 s", fired)
			}
			if step < 0 {
				s.pass(-step, -step/50)
			}
			s.pass(70*time.Second, time.Second)
			s.account()
		})
	}
}

// Redis's clock was ahead, for a while or when the schedule was put, and went back. What was passed over comes by the clock as
// it is, and what fired meanwhile does not come again.
func TestAScheduleCountsFromAClockThatWasAheadAndWentBack(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr
	all := map[string]string{
		"minute": `"cron":"* * * * *"`,
		"jitter": `"every":"5m","jitter":"1m"`,
		"skip":   `"every":"2m","missed":"skip","grace":"5s"`,
		"buffer": `"every":"1m","overlap":"buffer"`,
		"hourly": `"cron":"30 * * * *","tz":"Europe/Berlin"`,
	}
	for i, help := range []string{"a process saw it", "resumed", "put"} {
		t.Run(help, func(t *testing.T) {
			t.Parallel()
			specs := maps.Clone(all)
			began := time.Date(2026, 10, 20, 11, 57, 30, 0, time.UTC)
			s := newSite(t, addr, i, began, cron.Zone, cron.Zone)
			for name, spec := range specs {
				s.put(name, "{"+spec+"}", cron.Zone)
			}
			s.pass(5*time.Minute, 10*time.Second)
			pause := func(name string, pause bool) {
				if _, _, err := s.PauseSchedule(t.Context(), s.ns, queue, name, pause); err != nil {
					t.Fatal(err)
				}
			}
			s.put("paused", `{"every":"1m"}`, cron.Zone)
			pause("paused", true)
			s.step(5 * time.Hour)
			s.put("late", `{"every":"1m"}`, cron.Zone)
			s.pass(20*time.Minute, 10*time.Second)
			pause("paused", false)
			fired := map[string]int{}
			for name := range s.fired {
				fired[name] = len(s.fired[name])
			}

			s.now = s.now.Add(-5 * time.Hour)
			s.SetNow(s.now)
			back := s.now
			for name, spec := range specs {
				switch help {
				case "resumed":
					pause(name, true)
					pause(name, false)
				case "put":
					s.put(name, "{"+spec+`,"tries":7}`, cron.Zone)
				}
			}
			if help == "a process saw it" {
				s.firers[0].Recount(t.Context(), job.DueShard{Namespace: s.ns})
				s.firers[1].Recount(t.Context(), job.DueShard{Namespace: s.ns})
				specs["late"], specs["paused"] = "", ""
			}
			s.pass(100*time.Minute, 10*time.Second)
			for name := range specs {
				want := 0
				for tick := s.specs[name].Next(back.UnixMilli()); s.specs[name].Fires("mail", queue, name, tick) <= s.now.UnixMilli(); tick = s.specs[name].Next(tick) {
					want++
				}
				if got := len(s.fired[name]) - fired[name]; got < want-1 || got > want+1 { // a jitter may be open at either end
					t.Errorf("%s fired %d times in 100 min, want %d", name, got, want)
				}
			}

			// Those that fired when the clock was ahead are over: work looks for doubles.
			s.pass(4*time.Hour, 30*time.Second)
			for name := range specs {
				state := s.state(name)
				if state.Next > s.now.Add(time.Hour+time.Minute).UnixMilli() {
					t.Errorf("%s comes at %s, it is %s", name, schedule.TickText(state.Next), s.now)
				}
			}
		})
	}
}

// Redis's clock jumps, the schedule is paused, its queue is full, somebody puts it: in any order. A plain list of what fired
// holds that no tick fires twice, and that each fires while the clock goes as it should and nothing holds the schedule up.
func TestEachTickFiresOnceByAClockThatJumps(t *testing.T) {
	t.Parallel()
	specs := []string{
		`"every":"1m"`,
		`"every":"1m","missed":"all"`,
		`"every":"2m","missed":"skip","grace":"15s"`,
		`"cron":"* * * * *","jitter":"40s"`,
		`"every":"1m","grace":"5s","overlap":"buffer"`,
	}
	addr := redistest.Start(t).Addr
	each(t, length(300, 10), func(db int, seed uint64) (found string) {
		r := rand.New(rand.NewPCG(seed, 9))
		j := &jumping{t: t, fired: map[int64]bool{}}
		var closed func()
		j.onRedis, j.ns, closed = openRedis(t, addr, db, false)
		defer closed()
		j.lane = j.NewLane()
		defer func() {
			if r := recover(); r != nil {
				found = fmt.Sprint(r, "\n", strings.Join(j.history, "\n"))
			}
		}()
		j.clock(time.Date(2026, 10, 20, 11, 57, 30, 0, time.UTC))
		fields := specs[r.IntN(len(specs))]
		j.put(fields)
		j.pass()
		most := 4 // as many jumps and stops as a state remembers for certain, of ticks of one grid
		if seed%4 == 0 {
			most = 12
		}
		for range most {
			span := []time.Duration{30 * time.Second, 10 * time.Minute, 2 * time.Hour, 5 * time.Hour}[r.IntN(4)]
			switch r.IntN(7) {
			case 0, 1:
				j.clock(j.now.Add(span))
				j.note("%s ahead", span)
			case 2, 3:
				j.clock(j.now.Add(-span))
				j.note("%s back", span)
				j.look() // the firer sees the step
			case 4:
				j.paused = !j.paused
				j.note("paused %v", j.paused)
				if _, _, err := j.PauseSchedule(t.Context(), j.ns, queue, "tick", j.paused); err != nil {
					j.fatalf("%v", err)
				}
			case 5:
				before := j.full
				j.full = []int64{0, mostJobs, mostJobs - 1, mostJobs - 3}[r.IntN(4)]
				j.client.HIncrBy(t.Context(), key("ledger"), "published", j.full-before)
				j.note("full by %d", j.full)
			default:
				if most > 4 {
					fields = specs[r.IntN(len(specs))]
				}
				j.put(fields)
			}
			if r.IntN(4) > 0 {
				began := j.now
				j.pass()
				for tick := j.spec.Next(began.UnixMilli()); most == 4 && !j.paused && j.full == 0 &&
					j.spec.Fires("mail", queue, "tick", tick) <= j.now.UnixMilli(); tick = j.spec.Next(tick) {
					if !j.fired[tick] {
						j.fatalf("%s did not fire", schedule.TickText(tick))
					}
				}
			}
		}
		return ""
	})
}

// A jumping is a schedule called tick by a clock that the test sets.
type jumping struct {
	*onRedis
	t       *testing.T
	ns      *job.Namespace
	lane    *job.Lane
	now     time.Time
	spec    *schedule.Spec
	puts    int
	paused  bool
	full    int64          // jobs that somebody else has there
	fired   map[int64]bool // by tick
	history []string
}

func (j *jumping) note(format string, args ...any) {
	state := j.client.HGet(j.t.Context(), key("state"), "tick "+queue).Val()
	j.history = append(j.history, j.now.Format("15:04:05 ")+fmt.Sprintf(format, args...)+": "+state)
}

func (j *jumping) fatalf(format string, args ...any) {
	j.note(format, args...)
	panic(string(j.spec.JSON()))
}

func (j *jumping) clock(now time.Time) {
	j.now = now
	j.SetNow(now)
}

// look makes the schedule, while it is active, due now.
func (j *jumping) look() {
	j.client.ZAddXX(j.t.Context(), key("due"), redis.Z{Score: float64(j.now.UnixMilli()), Member: "tick " + queue})
}

// put replaces the specification.
func (j *jumping) put(fields string) {
	j.puts++
	j.spec = parse(j.t, fmt.Sprintf(`{%s,"tries":%d}`, fields, j.puts))
	_, err := schedule.Put(j.t.Context(), j.onRedis, j.ns, queue, "tick", j.spec, 0)
	j.work()
	if j.note("put"); err != nil {
		j.fatalf("%v", err)
	}
}

// pass lets five minutes pass as they should.
func (j *jumping) pass() {
	for range 30 {
		j.clock(j.now.Add(10 * time.Second))
		for { // as long as something is due
			now, list, _ := j.DueSchedules(j.t.Context(), j.ns, 0, 0, 1)
			if len(list) == 0 || list[0].At > now {
				break
			}
			state, _ := schedule.ReadState(list[0].State)
			f := schedule.Plan(j.spec, "mail", queue, "tick", list[0].State, &state, now)
			if _, err := j.Fire(j.t.Context(), j.ns, 0, now, []*job.Firing{f}); err != nil || f.Status != job.Fired && f.Status != job.NoRoom {
				j.fatalf("status %d: %v", f.Status, err)
			}
			j.work()
			if f.Status == job.NoRoom && j.full > 0 {
				break
			} else if f.Status == job.NoRoom {
				j.look() // not in a second
			}
		}
	}
	j.note("five minutes passed")
}

// work does all jobs.
func (j *jumping) work() {
	b := &job.Batch{Claims: []*job.Claim{{Namespace: j.ns, Queues: []string{queue}, TTR: time.Hour, Count: 1000}}}
	j.Run(j.t.Context(), j.lane, b)
	done := &job.Batch{}
	for _, got := range b.Claims[0].Jobs {
		var a map[string]string
		_ = json.Unmarshal(got.Attributes, &a)
		tick, err := time.Parse(time.RFC3339, a["tick"])
		if ms := tick.UnixMilli(); err != nil || j.fired[ms] {
			j.fatalf("%s fired twice: %v", a["tick"], err)
		}
		j.fired[tick.UnixMilli()] = true
		done.Acks = append(done.Acks, &job.Ack{Namespace: j.ns, Queue: queue, Ref: got.Ref})
	}
	j.Run(j.t.Context(), j.lane, done)
}
