package schedule_test

import (
	"context"
	"crypto/sha1"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua"
	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

// A world is a store on a clock of its own, with users, processes that fire, and workers, who take turns at random. After
// each act it looks at everything: the account of each schedule, when and how often each tick was published, the ledger.
type world struct {
	t     testing.TB
	fail  func(format string, args ...any) // ends the walk
	r     *rand.Rand
	redis *miniredis.Miniredis
	store *job.Store
	ns    *job.Namespace
	lane  *job.Lane
	now   time.Time
	most  time.Time // the clock was never later

	specs   map[string]*schedule.Spec // of the schedules that there are, by name
	seen    map[string]schedule.State // as they were after the last act
	plans   []plan                    // that processes hold in their hands
	made    int                       // of schedules, for their names
	history []string

	paused    map[string]time.Time  // when it was paused last, while it is
	pauses    map[string][][2]int64 // spans of pauses, ms
	steps     bool                  // the clock often steps back
	back      bool                  // it did
	triggered map[string]triggered  // by schedule and key
	published map[string]string     // "name tick" of runs due, caught up and waited → id of the first job
	done      map[string]bool       // ids of jobs that were looked at
}

// triggered is a run under a key.
type triggered struct {
	first int64
	at    time.Time
}

// plan is what a process is about to fire.
type plan struct {
	at      int64
	firings []*job.Firing
}

const queue = "reports"

func newWorld(t testing.TB, seed uint64) *world {
	redis := miniredis.RunT(t)
	w := &world{
		t:         t,
		steps:     seed%3 == 0,
		fail:      t.Fatalf,
		r:         rand.New(rand.NewPCG(seed, 1)),
		redis:     redis,
		now:       time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
		specs:     map[string]*schedule.Spec{},
		seen:      map[string]schedule.State{},
		published: map[string]string{},
		paused:    map[string]time.Time{},
		pauses:    map[string][][2]int64{},
		triggered: map[string]triggered{},
		done:      map[string]bool{},
	}
	w.sleep(0)
	back, err := backend.Open(backend.Config{URL: "redis://" + redis.Addr()}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = back.Close() })
	p := job.DefaultPolicy()
	p.MaxJobs, p.MaxQueues, p.MaxSchedules = 30, 2, 6
	w.store, err = job.Open(job.Config{Prefix: "sw", Volatile: true, Namespaces: map[string]job.Policy{"mail": p}}, back,
		prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.ns, w.lane = w.store.Namespace("mail"), w.store.NewLane()
	return w
}

func (w *world) note(format string, args ...any) {
	w.history = append(w.history, w.now.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.fail("%s\n%s", strings.Join(w.history[max(0, len(w.history)-40):], "\n"), fmt.Sprintf(format, args...))
}

// sleep sets the clock.
func (w *world) sleep(d time.Duration) {
	w.now = w.now.Add(d)
	if w.now.After(w.most) {
		w.most = w.now
	}
	w.redis.SetTime(w.now)
}

func (w *world) pick() string {
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range w.specs {
			if !yield(name) {
				return
			}
		}
	})
	if len(names) == 0 {
		return ""
	}
	return names[w.r.IntN(len(names))]
}

// spec is a specification at random.
func (w *world) spec() *schedule.Spec {
	one := func(list ...string) string { return list[w.r.IntN(len(list))] }
	fields := []string{one(`"every":"2s"`, `"every":"7s"`, `"every":"1m"`, `"cron":"*/5 * * * *"`, `"cron":"30 2 * * *","tz":"Europe/Berlin"`,
		`"at":"`+w.now.Add(time.Duration(1+w.r.IntN(90))*time.Second).Format(time.RFC3339)+`"`)}
	maybe := func(list ...string) {
		if w.r.IntN(3) == 0 {
			fields = append(fields, one(list...))
		}
	}
	maybe(`"overlap":"skip"`, `"overlap":"buffer"`)
	maybe(`"missed":"all"`, `"missed":"skip"`)
	maybe(`"grace":"0s"`, `"grace":"10s"`)
	maybe(`"window":"30s"`, `"window":"10m"`)
	maybe(`"jitter":"1s"`, `"jitter":"30s"`)
	maybe(`"shards":2`, `"shards":3`)
	maybe(`"max_runs":1`, `"max_runs":5`)
	maybe(`"until":"` + w.now.Add(time.Minute).Format(time.RFC3339) + `"`)
	maybe(`"ttl":"20s"`)
	s, err := schedule.Parse([]byte("{" + strings.Join(fields, ",") + "}"))
	if err != nil {
		w.fatalf("%v in %s", err, fields)
	}
	return s
}

// step is one act of somebody.
func (w *world) step() {
	ctx := w.t.Context()
	switch w.r.IntN(13) {
	case 0: // a new schedule, or another specification
		name := w.pick()
		if name == "" || w.r.IntN(2) == 0 {
			w.made++
			name = fmt.Sprint("s", w.made)
		}
		w.put(name, w.spec())
	case 1:
		if name := w.pick(); name != "" {
			pause := w.r.IntN(2) == 0
			changed, _, err := w.store.PauseSchedule(ctx, w.ns, queue, name, pause)
			if changed && pause {
				w.paused[name] = w.now
			} else if changed {
				w.pauses[name] = append(w.pauses[name], [2]int64{w.paused[name].UnixMilli(), w.now.UnixMilli()})
			}
			w.note("pause %s %v: %v", name, pause, err)
			if err != nil && !errors.Is(err, job.ErrEnded) {
				w.fatalf("pause: %v", err)
			}
		}
	case 2:
		if name := w.pick(); name != "" {
			w.trigger(name)
		}
	case 3:
		if name := w.pick(); name != "" && w.r.IntN(4) == 0 {
			if err := w.store.DeleteSchedule(ctx, w.ns, queue, name); err != nil {
				w.fatalf("delete: %v", err)
			}
			w.note("delete %s", name)
			delete(w.specs, name)
			delete(w.seen, name)
		}
	case 4, 5: // a process reads what is due, and plans
		w.look()
	case 6, 7, 8: // it fires, perhaps after a stall, perhaps again, as it never got the answer
		if len(w.plans) > 0 {
			i := w.r.IntN(len(w.plans))
			p := w.plans[i]
			w.fire(p)
			if w.r.IntN(3) > 0 {
				w.plans = slices.Delete(w.plans, i, i+1)
			}
		}
	case 9, 10:
		w.work()
	case 11:
		w.sleep([]time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second, 3 * time.Second, 20 * time.Second}[w.r.IntN(5)])
	case 12:
		switch n := w.r.IntN(25); {
		case n == 0:
			w.sleep([]time.Duration{5 * time.Minute, 26 * time.Hour}[w.r.IntN(2)])
		case n == 1 || n < 12 && w.steps:
			w.back = true
			w.sleep(-[]time.Duration{time.Second, 5 * time.Second, time.Hour}[w.r.IntN(3)])
		default:
			w.sleep(2 * time.Second)
		}
	}
	w.check()
}

func (w *world) put(name string, s *schedule.Spec) {
	before := w.seen[name]
	if found, err := w.store.GetSchedule(w.t.Context(), w.ns, queue, name); err == nil {
		before, _ = schedule.ReadState(found.State)
	}
	old := w.specs[name]
	p, err := schedule.Put(w.t.Context(), clocked{w, w.store}, w.ns, queue, name, s, 0)
	var field *schedule.FieldError
	switch {
	case errors.Is(err, job.ErrTooManySchedules), errors.As(err, &field):
		w.note("put %s %s: %v", name, s.JSON(), err)
	case err != nil:
		w.fatalf("put: %v", err)
	default:
		w.note("put %s %s: %d, first %s", name, s.JSON(), p.Result, schedule.TickText(p.First))
		w.specs[name] = s
		w.checkPut(name, old, before)
	}
}

// checkPut looks at the account after another specification: each tick that was due by the one before has become one thing.
func (w *world) checkPut(name string, old *schedule.Spec, before schedule.State) {
	found, err := w.store.GetSchedule(w.t.Context(), w.ns, queue, name)
	state, ok := schedule.ReadState(found.State)
	if err != nil || !ok {
		w.fatalf("get %s: %v", name, err)
	}
	if old == nil || before.Tag == state.Tag || before.Flag != 'a' {
		return
	}
	due := int64(0)
	for tick := before.Next; tick > 0 && old.Fires("mail", queue, name, tick) <= w.now.UnixMilli(); tick = old.Next(tick) {
		due++
	}
	if got := state.Ticks.Total() - before.Ticks.Total(); got != due && old.MaxRuns == 0 {
		w.fatalf("%s: %d ticks were due at the put, the account rose by %d: %+v, before %+v", name, due, got, state, before)
	}
}

// clocked is the store with the world's clock: that of a process is set by answers, which are not of the last moment.
type clocked struct {
	*world
	job.ScheduleOperations
}

func (c clocked) Clock(context.Context, *job.Namespace, string) (int64, error) {
	return c.now.UnixMilli(), nil
}
func (c clocked) GetSchedule(ctx context.Context, ns *job.Namespace, queue, name string) (job.Schedule, error) {
	return c.store.GetSchedule(ctx, ns, queue, name)
}
func (c clocked) PutSchedule(ctx context.Context, p *job.PutSchedule) error {
	if c.r.IntN(3) == 0 {
		// Between what Put read and what it does.
		c.sleep(time.Duration(c.r.IntN(3000)) * time.Millisecond)
		for _, p := range c.plans {
			c.fire(p)
		}
	}
	return c.store.PutSchedule(ctx, p)
}
func (c clocked) Fire(ctx context.Context, ns *job.Namespace, shard int, made int64,
	firings []*job.Firing) (int64, error) {
	at, err := c.store.Fire(ctx, ns, shard, made, firings)
	for _, f := range firings {
		c.noteFired(f)
	}
	return at, err
}

func (w *world) trigger(name string) {
	s := w.specs[name]
	t := &job.Trigger{Namespace: w.ns, Queue: queue, Name: name, Finished: s.Overlap == "skip", Runs: s.Runs(name, []int64{w.now.UnixMilli()}, 't')}
	if w.r.IntN(2) == 0 {
		t.Key = fmt.Sprint("k", w.r.IntN(3))
	}
	err := w.store.Trigger(w.t.Context(), t)
	w.note("trigger %s: %v", name, err)
	if err != nil && !errors.Is(err, job.ErrUnfinished) && !errors.Is(err, job.ErrTooManyJobs) {
		w.fatalf("trigger: %v", err)
	}
	if err != nil || t.Key == "" {
		return
	}
	key := name + " " + t.Key
	if before, again := w.triggered[key]; again && !w.back && w.now.Sub(before.at) < 2*time.Minute && (t.First != before.first || !t.Repeated) {
		w.fatalf("%s again: the job %d, before %d", key, t.First, before.first)
	} else if !t.Repeated {
		w.triggered[key] = triggered{t.First, w.now}
	}
}

func (w *world) look() {
	now, list, err := w.store.DueSchedules(w.t.Context(), w.ns, 0, w.r.IntN(2), 1+w.r.IntN(3))
	if err != nil {
		w.fatalf("look: %v", err)
	}
	p := plan{at: now}
	for _, due := range list {
		state, ok := schedule.ReadState(due.State)
		if !ok {
			w.fatalf("state %q", due.State)
		}
		if due.At <= now {
			p.firings = append(p.firings, schedule.Plan(w.specs[due.Name], "mail", queue, due.Name, due.State, &state, now))
		}
	}
	if len(p.firings) > 0 && len(w.plans) < 3 {
		w.plans = append(w.plans, p)
	}
}

func (w *world) fire(p plan) {
	if _, err := w.store.Fire(w.t.Context(), w.ns, 0, p.at, p.firings); err != nil {
		w.fatalf("fire: %v", err)
	}
	for _, f := range p.firings {
		w.noteFired(f)
	}
}

func (w *world) noteFired(f *job.Firing) {
	w.note("fire %s of state %.40s: status %d, %d of %d runs, %d missed, %d paused", f.Name, f.State, f.Status, f.Fired, len(f.List),
		f.Missed, f.Paused)
}

// work claims jobs, and acks or buries most of them.
func (w *world) work() {
	ctx := w.t.Context()
	c := &job.Claim{Namespace: w.ns, Queues: []string{queue}, TTR: time.Hour, Count: 1 + w.r.IntN(8)}
	w.store.Run(ctx, w.lane, &job.Batch{Claims: []*job.Claim{c}})
	if c.Err != nil {
		w.fatalf("claim: %v", c.Err)
	}
	w.note("claimed %d", len(c.Jobs))
	b := &job.Batch{}
	for _, j := range c.Jobs {
		w.meet(j)
		if w.r.IntN(6) > 0 {
			b.Acks = append(b.Acks, &job.Ack{Namespace: w.ns, Queue: queue, Ref: j.Ref})
		}
	}
	w.store.Run(ctx, w.lane, b)
}

// meet looks at a job that a worker got: its tick was not published before, is not early, and is one of the schedule's.
func (w *world) meet(j job.Job) {
	id := fmt.Sprint(j.Seq)
	if w.done[id] {
		return
	}
	w.done[id] = true
	var a map[string]string
	if err := json.Unmarshal(j.Attributes, &a); err != nil {
		w.fatalf("attributes %s: %v", j.Attributes, err)
	}
	if a["cause"] == "triggered" {
		return
	}
	key := a["schedule"] + " " + a["tick"] + " " + a["shard_index"]
	if before, again := w.published[key]; again {
		w.fatalf("%s was published as %s and as %s", key, before, id)
	}
	w.published[key] = id
	tick, err := time.Parse(time.RFC3339, a["tick"])
	if err != nil {
		w.fatalf("tick: %v", err)
	}
	for _, span := range w.pauses[a["schedule"]] {
		if ms := tick.UnixMilli(); !w.back && ms > span[0] && ms <= span[1] && a["cause"] != "waited" {
			w.fatalf("%s was published, and it was paused from %d to %d", key, span[0], span[1])
		}
	}
	// Its sequence is the shard's clock, but never falls.
	if tick.After(w.most) || tick.UnixMilli() > j.Seq/1000 {
		w.fatalf("%s was published early, at %s", key, time.UnixMicro(j.Seq).UTC())
	}
}

// check looks at each schedule: every tick that it has passed since the last look has become one thing.
func (w *world) check() {
	ctx := w.t.Context()
	list, more, err := w.store.Schedules(ctx, w.ns, queue, "", 100)
	if err != nil || more || len(list) != len(w.specs) {
		w.fatalf("%d schedules, want %d: %v", len(list), len(w.specs), err)
	}
	specs, _ := w.redis.HKeys("sw:{mail.0}:s:" + queue)
	if states, _ := w.redis.HKeys("sw:{mail.0}:state"); len(states) != len(list) || len(specs) != len(list) || len(list) > 6 {
		w.fatalf("%d schedules, of at most 6, %d states, %d specifications", len(list), len(states), len(specs))
	}
	for _, found := range list {
		state, ok := schedule.ReadState(found.State)
		spec := w.specs[found.Name]
		if !ok || spec == nil || string(spec.JSON()) != string(found.Spec) {
			w.fatalf("%s: state %q, specification %s", found.Name, found.State, found.Spec)
		}
		before, known := w.seen[found.Name]
		w.seen[found.Name] = state
		for _, run := range state.Last {
			known := slices.ContainsFunc(before.Last, func(b schedule.Run) bool { return b.First == run.First })
			if !known && run.Cause != "triggered" && run.Tick > w.now.UnixMilli() {
				w.fatalf("%s: the tick %s was fired early", found.Name, schedule.TickText(run.Tick))
			}
		}
		if !known || before.Tag != state.Tag {
			continue // checkPut looks at these
		}
		passed := int64(0)
		for tick := before.Next; tick > 0 && tick != state.Next; tick = spec.Next(tick) {
			if passed++; state.Next == 0 && spec.MaxRuns > 0 && before.Flag == 'a' && passed > 100_000 {
				break
			}
		}
		ended := state.Flag == 'e' && spec.MaxRuns > 0 // what comes after the last run is no tick of it any more
		if got := state.Ticks.Total() - before.Ticks.Total(); got != passed && !ended {
			w.fatalf("%s: %d ticks passed, the account rose by %d: %+v, before %+v", found.Name, passed, got, state, before)
		}
		if state.Next > 0 && state.Next < before.Next {
			w.fatalf("%s: the next tick fell from %d to %d", found.Name, before.Next, state.Next)
		}
		if runs := state.Ticks.Fired; spec.MaxRuns > 0 && runs > spec.MaxRuns && before.Ticks.Fired < runs {
			w.fatalf("%s: %d runs, at most %d", found.Name, runs, spec.MaxRuns)
		}
	}
	residual, err := w.store.Audit(ctx, w.ns)
	if err != nil || residual != 0 {
		w.fatalf("residual %d: %v", residual, err)
	}
	if l, err := w.store.Ledger(ctx, w.ns); err != nil || l.Ready+l.Delayed+l.Leased+l.Dead > 30 {
		w.fatalf("ledger %+v: %v", l, err)
	}
}

// Walks of users, processes that stall and repeat, clocks that step, and workers.
func TestEachTickIsPublishedOnceAndAccounted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, seed)
			for range 300 {
				w.step()
			}
		})
	}
}

// stopped ends a walk that found something.
type stopped string

// walk is whether a walk finds something, and what.
func walk(t testing.TB, seed uint64, steps int) (found string) {
	w := newWorld(t, seed)
	w.fail = func(format string, args ...any) { panic(stopped(fmt.Sprintf(format, args...))) }
	defer func() {
		switch r := recover().(type) {
		case nil:
		case stopped:
			found = string(r)
		default:
			panic(r)
		}
	}()
	for range steps {
		w.step()
	}
	return ""
}

// Each of these mistakes in a script, made on purpose, is found by a walk. It runs alone: it changes the scripts.
func TestWalksFindMistakesInTheScripts(t *testing.T) {
	for name, bug := range map[string]struct {
		script   *lua.Script
		old, new string
	}{
		"fires whatever the state is":            {luajob.Fire, "found[y] == old", "found[y]"},
		"fires by a plan from behind the clock":  {luajob.Fire, "now < made or now", "now"},
		"forgets missed ticks":                   {luajob.Fire, "s.missed + f.missed", "s.missed"},
		"forgets paused ticks":                   {luajob.Fire, "s.paused + f.paused", "s.paused"},
		"forgets ticks that overlap":             {luajob.Fire, "s.overlapped = s.overlapped + 1", "s.overlapped = s.overlapped"},
		"forgets the tick that waits":            {luajob.Fire, "overlap == 'buffer' and s.waiting == 0", "overlap == 'buffer'"},
		"publishes the tick that waits again":    {luajob.Fire, "          s.waiting = 0\n", "          s.waiting = run.tick\n"},
		"swallows a tick without room":           {luajob.Fire, "          next_tick = run.tick\n", "          next_tick = next_tick\n"},
		"goes over max_jobs":                     {luajob.Fire, "x.live + m > max_jobs", "false"},
		"does not count what it publishes":       {luajob.Fire, "x.published + m, x.live + m", "x.published, x.live + m"},
		"counts a run twice":                     {luajob.Fire, "s.fired + 1", "s.fired + 2"},
		"goes over max_runs":                     {luajob.Fire, "left - 1", "left"},
		"a put swallows a due tick":              {luajob.PutSchedule, "first > 0 and first <= now or open > 0 and open <= now", "false"},
		"a put forgets the tick that waits":      {luajob.PutSchedule, "given_up, s.waiting = given_up + 1, 0", "s.waiting = 0"},
		"a put goes over max_schedules":          {luajob.PutSchedule, "redis.call('HLEN', states) >= max", "false"},
		"a pause forgets the tick that waits":    {luajob.PauseSchedule, "s.waiting, s.paused = 0, s.paused + 1", "s.waiting = 0"},
		"a resume fires what came due meanwhile": {luajob.PauseSchedule, "s.flag, s.till = 'a', now", "s.flag = 'a'"},
		"a trigger goes over max_jobs":           {luajob.Trigger, "x.live + count > max_jobs", "false"},
		"a trigger repeats itself":               {luajob.Trigger, "elseif before then", "elseif false then"},
		"a trigger does not count its jobs":      {luajob.Trigger, "'published', int(x.published + count)", "'published', int(x.published)"},
		"a delete leaves the specification":      {luajob.DeleteSchedule, "redis.call('HDEL', KEYS[3], ARGV[i])", "local _ = 0"},
	} {
		right := *bug.script
		wrong := strings.Replace(right.Source, bug.old, bug.new, 1)
		if wrong == right.Source {
			t.Errorf("%s: %s is not in the script", name, bug.old)
			continue
		}
		bug.script.Source, bug.script.SHA = wrong, fmt.Sprintf("%x", sha1.Sum([]byte(wrong)))
		found := ""
		for seed := uint64(0); seed < 120 && found == ""; seed++ {
			found = walk(t, seed, 250)
		}
		*bug.script = right
		if found == "" {
			t.Errorf("%s: no walk found it", name)
		}
	}
}
