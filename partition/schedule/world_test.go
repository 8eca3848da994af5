package schedule_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

// A world is a store on a clock of its own, with users, processes that fire, and workers, who take turns at random. After
// each act it looks at everything: the account of each schedule, when and how often each tick was published, the ledger.
type world struct {
	t     testing.TB
	r     *rand.Rand
	store *onRedis
	ns    *job.Namespace
	lane  *job.Lane
	bug   string // a mistake of the processes, made on purpose; "" for none
	now   time.Time
	most  time.Time // the clock was never later

	plans   []plan // that processes hold in their hands
	made    int    // of schedules, for their names
	history []string
	fired   time.Time       // when somebody fired last
	putting string          // the schedule that this act puts
	early   map[string]bool // those that a registration fired, which does not wait for the jitter
	steps   bool            // the clock often steps back
	back    bool            // it did
	known
	saved      any // of the store, and what the world knew then
	savedKnown known
}

// known is what the world knows of the store.
type known struct {
	specs     map[string]*schedule.Spec // of the schedules that there are, by name
	seen      map[string]schedule.State // as they were after the last act
	paused    map[string]time.Time      // when it was paused last, while it is
	pauses    map[string][][2]int64     // spans of pauses, ms
	triggered map[string]triggered      // by schedule and key
	published map[string]string         // "name tick" of runs due, caught up and waited → id of the first job
	done      map[string]bool           // ids of jobs that were looked at
	ended     map[int64]bool            // sequences of jobs that were acked or buried
	expires   map[string]bool           // schedules some of whose jobs may expire
	owners    map[string]knownOwner     // that registered
	forgot    map[string]bool           // schedules that were put when their state named no tick that fired
}

func (k known) clone() known {
	return known{
		specs:     maps.Clone(k.specs),
		seen:      maps.Clone(k.seen),
		paused:    maps.Clone(k.paused),
		pauses:    maps.Clone(k.pauses),
		triggered: maps.Clone(k.triggered),
		published: maps.Clone(k.published),
		done:      maps.Clone(k.done),
		ended:     maps.Clone(k.ended),
		expires:   maps.Clone(k.expires),
		owners:    maps.Clone(k.owners),
		forgot:    maps.Clone(k.forgot),
	}
}

// triggered is a run under a key.
type triggered struct {
	first int64
	count int
	at    time.Time
}

// plan is what a process is about to fire.
type plan struct {
	at      int64
	firings []*job.Firing
}

const (
	queue         = "reports"
	mostJobs      = 30
	mostSchedules = 6
)

// newWorld begins a walk on an empty store.
func newWorld(t testing.TB, seed uint64, store *onRedis, ns *job.Namespace) *world {
	w := &world{
		t:     t,
		steps: seed%3 == 0,
		store: store,
		ns:    ns,
		lane:  store.NewLane(),
		r:     rand.New(rand.NewPCG(seed, 1)),
		now:   time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
		known: known{
			specs:     map[string]*schedule.Spec{},
			seen:      map[string]schedule.State{},
			paused:    map[string]time.Time{},
			pauses:    map[string][][2]int64{},
			triggered: map[string]triggered{},
			published: map[string]string{},
			done:      map[string]bool{},
			ended:     map[int64]bool{},
			expires:   map[string]bool{},
			owners:    map[string]knownOwner{},
			forgot:    map[string]bool{},
		},
	}
	w.sleep(0)
	return w
}

func (w *world) note(format string, args ...any) {
	w.history = append(w.history, w.now.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// fatalf ends the walk.
func (w *world) fatalf(format string, args ...any) {
	panic(stopped(fmt.Sprintf(format, args...)))
}

// sleep sets the clock.
func (w *world) sleep(d time.Duration) {
	w.now = w.now.Add(d)
	if w.now.After(w.most) {
		w.most = w.now
	}
	w.store.SetNow(w.now)
}

// state is that of a schedule; the zero one where there is none.
func (w *world) state(name string) (s schedule.State, text string) {
	found, err := w.store.GetSchedule(w.t.Context(), w.ns, queue, name)
	if s, ok := schedule.ReadState(found.State); ok {
		return s, found.State
	}
	if !errors.Is(err, job.ErrNoSchedule) {
		w.fatalf("get %s: %q, %v", name, found.State, err)
	}
	return s, ""
}

// live is how many jobs there are.
func (w *world) live() int64 {
	l, err := w.store.Ledger(w.t.Context(), w.ns)
	if err != nil {
		w.fatalf("ledger: %v", err)
	}
	return l.Ready + l.Delayed + l.Leased + l.Dead
}

// busy says whether a job of the last run is unfinished.
func (w *world) busy(s schedule.State) bool {
	for seq := s.First; seq < s.First+s.Count; seq++ {
		if !w.ended[seq] {
			return true
		}
	}
	return false
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
	w.putting, w.early = "", map[string]bool{}
	switch w.r.IntN(14) {
	case 13:
		w.owner()
	case 0: // a new schedule, or another specification
		name := w.pick()
		if name == "" || w.r.IntN(2) == 0 {
			w.made++
			name = fmt.Sprint("s", w.made)
		}
		spec := w.spec()
		if old := w.specs[name]; old != nil && w.r.IntN(3) == 0 {
			spec = old // the same again, as a deploy puts it
		}
		w.put(name, spec)
	case 1:
		if name := w.pick(); name != "" {
			pause := w.r.IntN(2) == 0
			before, _ := w.state(name)
			changed, _, err := w.store.PauseSchedule(ctx, w.ns, queue, name, pause)
			if changed && pause {
				w.paused[name] = w.now
			} else if changed {
				span := [2]int64{w.paused[name].UnixMilli(), w.now.UnixMilli()}
				w.pauses[name] = append(slices.Clone(w.pauses[name]), span)
			}
			w.note("pause %s %v: %v", name, pause, err)
			after, _ := w.state(name)
			if ended := before.Flag == 'e'; ended != errors.Is(err, job.ErrEnded) || !ended && (err != nil || (after.Flag == 'p') != pause) {
				w.fatalf("pause %s %v: %v, %+v, before %+v", name, pause, err, after, before)
			}
		}
	case 2:
		if name := w.pick(); name != "" {
			w.trigger(name)
		}
	case 3:
		if name := w.pick(); name != "" && w.r.IntN(4) == 0 {
			if err := schedule.Delete(ctx, &adopting{world: w, Stores: w.store}, w.ns, queue, name); err != nil {
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
			if w.r.IntN(3) > 0 { // else its answer was lost
				w.plans = slices.Delete(w.plans, i, i+1)
			}
		}
	case 9, 10:
		w.work()
	case 11:
		w.sleep([]time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second, 3 * time.Second, 20 * time.Second}[w.r.IntN(5)])
	case 12:
		switch n := w.r.IntN(25); {
		case n == 0: // everything is away
			w.sleep([]time.Duration{5 * time.Minute, time.Hour, 26 * time.Hour}[w.r.IntN(3)])
		case n == 1 || n < 12 && w.steps:
			w.back = true
			w.sleep(-[]time.Duration{time.Second, 5 * time.Second, time.Hour, 24 * time.Hour}[w.r.IntN(4)])
		case n == 13: // a process dies
			w.plans = nil
		case n == 14:
			w.saved, w.savedKnown = w.store.Save(), w.known.clone()
		case n == 15 && w.saved != nil: // a failover: processes and the clock go on, the store has lost writes
			w.note("the store goes back")
			w.store.Restore(w.saved)
			w.known = w.savedKnown.clone()
		default:
			w.sleep(2 * time.Second)
		}
	}
	w.check()
}

func (w *world) put(name string, s *schedule.Spec) {
	before, _ := w.state(name)
	w.putting = name
	if ticked := func(run schedule.Run) bool { return run.Cause != "triggered" }; w.back && !slices.ContainsFunc(before.Last, ticked) {
		w.forgot[name] = true
	}
	old := w.specs[name]
	revision := int64(0)
	if w.r.IntN(3) == 0 {
		revision = before.Revision
	}
	c := &clocked{world: w, name: name}
	p, err := schedule.Put(w.t.Context(), c, w.ns, queue, name, s, revision)
	var field *schedule.FieldError
	switch {
	case errors.Is(err, job.ErrTooManySchedules) && len(w.specs) == mostSchedules && old == nil, errors.As(err, &field), errors.Is(err, schedule.ErrRevision),
		errors.Is(err, job.ErrOtherOwner) && old.Owner != "":
		w.note("put %s %s: %v", name, s.JSON(), err)
	case err != nil:
		w.fatalf("put: %v", err)
	default:
		w.note("put %s %s: %d, first %s", name, s.JSON(), p.Result, schedule.TickText(p.First))
		w.specs[name] = s
		w.expires[name] = w.expires[name] || s.TTL > 0
		if revision > 0 && p.Result == job.Replaced && p.Revision != revision+1 {
			w.fatalf("%s: a put of revision %d made %d", name, revision, p.Revision)
		}
		if c.between {
			delete(w.seen, name) // of two puts at once the account is not followed
		} else {
			w.checkPut(name, p, old, before)
		}
	}
}

// checkPut looks at the account after another specification: each tick that was due by the one before has become one thing.
func (w *world) checkPut(name string, p *job.PutSchedule, old *schedule.Spec, before schedule.State) {
	state, _ := w.state(name)
	flag := byte('a')
	if p.First == 0 {
		flag = 'e'
	} else if before.Flag == 'p' {
		flag = 'p'
	}
	if p.Result != job.Unchanged && state.Flag != flag {
		w.fatalf("%s: the put left %+v, before %+v", name, state, before)
	}
	if same := old != nil && before.Tag == p.Tag; same != (p.Result == job.Unchanged) ||
		same && state.Revision != before.Revision {
		w.fatalf("%s: the put was %s: %+v, before %+v", name, p.Result, state, before)
	}
	if old == nil || before.Tag == state.Tag || before.Flag == 'e' || before.Next > old.Next(w.now.UnixMilli()) {
		return // of the last, others may have found meanwhile that the clock went back
	}
	due := int64(0)
	for tick := before.Next; tick > 0 && tick <= w.now.UnixMilli(); tick = old.Next(tick) {
		if !before.Over(tick) {
			due++
		}
	}
	if got := state.Ticks.Total() - before.Ticks.Total(); got != due && old.MaxRuns == 0 {
		w.fatalf("%s: %d ticks were due at the put, the account rose by %d: %+v, before %+v", name, due, got, state, before)
	}
}

// clocked is the store as a put sees it, in which others take their turns.
type clocked struct {
	*world
	schedule.Stores
	name    string
	alone   bool
	between bool // somebody else put it meanwhile
}

func (c *clocked) Clock(context.Context, *job.Namespace, string) (int64, error) {
	return c.now.UnixMilli(), nil
}

func (c *clocked) GetSchedule(ctx context.Context, ns *job.Namespace, queue, name string) (job.Schedule, error) {
	return c.store.GetSchedule(ctx, ns, queue, name)
}

func (c *clocked) PutSchedule(ctx context.Context, p *job.PutSchedule) error {
	turn := c.r.IntN(6)
	if c.alone || c.between {
		turn = 5
	}
	switch turn {
	case 0, 1: // between what Put read and what it does
		c.sleep(time.Duration(c.r.IntN(3000)) * time.Millisecond)
		for _, p := range c.plans {
			c.fire(p)
		}
	case 2:
		spec := c.spec()
		if _, err := schedule.Put(ctx, &clocked{world: c.world, alone: true}, c.ns, queue, c.name, spec, 0); err == nil {
			c.note("meanwhile put %s %s", c.name, spec.JSON())
			c.specs[c.name], c.between = spec, true
			c.expires[c.name] = c.expires[c.name] || spec.TTL > 0
		}
	}
	return c.store.PutSchedule(ctx, p)
}

func (c *clocked) Fire(ctx context.Context, ns *job.Namespace, shard int, made int64,
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
	before, _ := w.state(name)
	unfinished := t.Finished && w.busy(before)
	err := w.store.Trigger(w.t.Context(), t)
	w.note("trigger %s: %v", name, err)
	switch {
	case errors.Is(err, job.ErrTooManyJobs) && w.live()+int64(len(t.List[0].Messages)) > mostJobs:
	case errors.Is(err, job.ErrUnfinished) && unfinished:
	case err != nil || unfinished && !t.Repeated && !w.expires[name]:
		w.fatalf("trigger: %v, of a run that is unfinished: %v", err, unfinished)
	}
	if err != nil || t.Key == "" {
		return
	}
	key := name + " " + t.Key
	if before, again := w.triggered[key]; again && !w.back && w.now.Sub(before.at) < 2*time.Minute && (t.First != before.first || !t.Repeated) {
		w.fatalf("%s again: the job %d, before %d", key, t.First, before.first)
	} else if !t.Repeated {
		w.triggered[key] = triggered{t.First, t.Count, w.now}
	}
}

func (w *world) look() {
	skip, limit := w.r.IntN(2), 1+w.r.IntN(3)
	now, list, err := w.store.DueSchedules(w.t.Context(), w.ns, 0, skip, limit)
	due, dueErr := w.store.client.ZCount(w.t.Context(), key("due"), "-inf", fmt.Sprint(now+1000)).Result()
	if err != nil || dueErr != nil || len(list) != min(limit, max(0, int(due)-skip)) {
		w.fatalf("look behind %d: %d of %d, %v, %v", skip, len(list), due, err, dueErr)
	}
	p := plan{at: now}
	if w.back && w.r.IntN(4) == 0 { // it saw the step
		list = nil
		all, _, err := w.store.Schedules(w.t.Context(), w.ns, queue, "", 100)
		if err != nil {
			w.fatalf("schedules: %v", err)
		}
		for _, s := range all {
			if state, _ := schedule.ReadState(s.State); state.Flag == 'a' {
				list = append(list, job.DueSchedule{Queue: queue, Name: s.Name, At: now, State: s.State})
			}
		}
	}
	for _, due := range list {
		state, text := w.state(due.Name)
		if text != due.State {
			w.fatalf("look: state %q, it is %q", due.State, text)
		}
		if due.At <= now {
			p.firings = append(p.firings, w.plan(due, state, now))
		}
	}
	if len(p.firings) > 0 && len(w.plans) < 3 {
		w.plans = append(w.plans, p)
	}
}

// plan is that of a process; it may have a mistake in it.
func (w *world) plan(due job.DueSchedule, state schedule.State, now int64) *job.Firing {
	spec := w.specs[due.Name]
	switch w.bug {
	case "a plan forgets the pause":
		state.Till = 0
	case "a plan by the specification of another":
		spec = w.specs[w.pick()]
	case "a plan without jitter":
		plain := *spec
		plain.Jitter = 0
		spec = &plain
	case "a plan runs ticks that are to come":
		now += 4000
	}
	f := schedule.Plan(spec, "mail", queue, due.Name, due.State, &state, now)
	switch w.bug {
	case "a plan passes over a tick":
		if f.Next > 0 {
			f.Next = spec.Next(f.Next)
		}
	case "a plan forgets what was missed":
		f.Missed = 0
	case "a plan runs its last tick twice":
		if n := len(f.List); n > 0 {
			f.List = append(f.List, f.List[n-1])
		}
	case "a plan ends a schedule too soon":
		f.Next = 0
	}
	return f
}

func (w *world) fire(p plan) {
	fits := map[*job.Firing]bool{} // the schedule is as it was
	for _, f := range p.firings {
		s, text := w.state(f.Name)
		fits[f] = s.Flag == 'a' && text == f.State
	}
	now, err := w.store.Fire(w.t.Context(), w.ns, 0, p.at, p.firings)
	if err != nil {
		w.fatalf("fire: %v", err)
	}
	timely, live := now >= p.at && now <= p.at+5000, w.live()
	for _, f := range p.firings {
		w.noteFired(f)
		right := fits[f] && timely
		switch f.Status {
		case job.Stale:
			right = !fits[f]
		case job.Untimely:
			right = fits[f] && !timely
		case job.NoRoom:
			right = right && live+int64(len(f.List[0].Messages)) > mostJobs
		case job.Fired, job.Unregistered:
		default:
			right = false
		}
		if !right {
			w.fatalf("fire %s: status %d, with %d jobs there", f.Name, f.Status, live)
		}
	}
}

func (w *world) noteFired(f *job.Firing) {
	if f.Fired > 0 {
		w.fired = w.now
	}
	if f.Status == job.Unregistered {
		w.fired = w.now
	}
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
		switch w.r.IntN(12) {
		case 0: // it works for long
			continue
		case 1:
			b.Settles = append(b.Settles, &job.Settle{
				Namespace: w.ns,
				Queue:     queue,
				Ref:       j.Ref,
				Attempt:   j.Attempt,
				Verb:      job.Bury,
			})
		default:
			b.Acks = append(b.Acks, &job.Ack{Namespace: w.ns, Queue: queue, Ref: j.Ref})
		}
		w.ended[j.Seq] = true
	}
	w.store.Run(ctx, w.lane, b)
	for _, s := range b.Settles {
		if s.Err != nil {
			w.fatalf("bury: %v", s.Err)
		}
	}
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
	if before, again := w.published[key]; again && !w.forgot[a["schedule"]] {
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
	pipe := w.store.client.TxPipeline()
	states, specs, due := pipe.HLen(ctx, key("state")), pipe.HLen(ctx, key("s:"+queue)), pipe.ZCard(ctx, key("due"))
	owned := map[string]*redis.MapStringStringCmd{}
	for _, owner := range ownerNames {
		owned[owner] = pipe.HGetAll(ctx, key("o:"+owner))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		w.fatalf("%v", err)
	}
	if n := int64(len(list)); states.Val() != n || specs.Val() != n || n > mostSchedules {
		w.fatalf("%d schedules, of at most %d, %d states, %d specifications", n, mostSchedules, states.Val(), specs.Val())
	}
	noted, active := 0, int64(0)
	for owner, fields := range owned {
		for member := range fields.Val() {
			name, is := strings.CutSuffix(member, " "+queue)
			if spec := w.specs[name]; is && (spec == nil || spec.Owner != owner) {
				w.fatalf("%s is noted as having %s, which it has not", owner, name)
			} else if is {
				noted++
			}
		}
	}
	for _, spec := range w.specs {
		if spec.Owner != "" {
			noted--
		}
	}
	if noted != 0 {
		w.fatalf("owners are noted as having %d schedules more than they have", noted)
	}
	for _, found := range list {
		state, ok := schedule.ReadState(found.State)
		spec := w.specs[found.Name]
		if !ok || spec == nil || string(spec.JSON()) != string(found.Spec) {
			w.fatalf("%s: state %q, specification %s", found.Name, found.State, found.Spec)
		}
		before, known := w.seen[found.Name]
		w.seen[found.Name] = state
		if state.Flag == 'a' {
			active++
		}
		if !known || before.Tag != state.Tag {
			continue // checkPut looks at these
		}
		w.checkRuns(found.Name, spec, before, state)
		ended := state.Flag == 'e' && spec.MaxRuns > 0 // what comes after the last run is no tick of it any more
		passed := int64(0)
		if state.Next > 0 && state.Next < before.Next && w.back && !before.Over(state.Next) {
			before.Next = state.Next // what was missed is to come
		}
		for tick := before.Next; !ended && tick > 0 && (state.Next == 0 || tick < state.Next); tick = spec.Next(tick) {
			if before.Over(tick) {
				continue // it was accounted for when the clock was ahead
			}
			if passed++; passed > 200_000 {
				break // it has no end
			}
		}
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
	if due.Val() != active {
		w.fatalf("%d schedules are active, %d deserve a look some time", active, due.Val())
	}
	residual, err := w.store.Audit(ctx, w.ns)
	if err != nil || residual != 0 {
		w.fatalf("residual %d: %v", residual, err)
	}
	if live := w.live(); live > mostJobs {
		w.fatalf("there are %d jobs", live)
	}
}

// checkRuns looks at the runs that the last act published of a schedule.
func (w *world) checkRuns(name string, spec *schedule.Spec, before, state schedule.State) {
	now := w.fired.UnixMilli()
	for _, run := range state.Last {
		old := slices.ContainsFunc(before.Last, func(b schedule.Run) bool { return b.First == run.First })
		if old || run.Cause == "triggered" {
			continue
		}
		fires := spec.Fires("mail", queue, name, run.Tick)
		if w.putting == name || w.early[name] {
			fires = run.Tick // a put does not wait for the jitter
		}
		if fires > now {
			w.fatalf("%s: the tick %s was fired early", name, schedule.TickText(run.Tick))
		}
		grace := time.Minute
		if spec.Grace != nil {
			grace = time.Duration(*spec.Grace)
		}
		// A plan holds for 5 s.
		if late := time.Duration(now-fires) * time.Millisecond; run.Cause == "due" && late > grace+5*time.Second {
			w.fatalf("%s: the tick %s was fired as if on time, %s late", name, schedule.TickText(run.Tick), late)
		}
	}
	fired := state.Ticks.Fired - before.Ticks.Fired
	if until := w.owners[spec.Owner].until; spec.Owner != "" && fired > 0 && until < now {
		w.fatalf("%s fired, and its owner was registered until %d", name, until)
	} else if state.Ticks.Unregistered > before.Ticks.Unregistered && (spec.Owner == "" || until >= now) {
		w.fatalf("%s did not fire, and its owner is registered until %d", name, until)
	}
	if spec.Overlap == "" || spec.Overlap == "allow" || w.expires[name] {
		return
	}
	busy := w.busy(before)
	if fired > 1 || fired > 0 && busy {
		w.fatalf("%s: %d runs beside one that was unfinished, %v: %+v, before %+v", name, fired, busy, state, before)
	}
	if state.Ticks.Overlapped > before.Ticks.Overlapped && !busy && fired == 0 {
		w.fatalf("%s: overlapped, and nothing ran: %+v, before %+v", name, state, before)
	}
}
