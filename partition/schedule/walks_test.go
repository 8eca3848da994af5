package schedule_test

import (
	"context"
	"crypto/sha1"
	"errors"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua"
	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/lua/scripttest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

var (
	walks         = flag.Uint64("walks", 150, "random walks of the model of schedules")
	lockstepWalks = flag.Uint64("lockstep", 8, "random walks of the scripts beside the model, on redis-server")
	miniWalks     = flag.Uint64("lockstep.mini", 4, "the same on miniredis")
	firstWalk     = flag.Uint64("walks.from", 0, "seed of the first walk of each kind")
)

// walkSteps are the acts of a walk.
const walkSteps = 300

// The scripts of this package's tests read their clock from a key, which a walk moves.
func init() {
	for _, script := range luajob.All() {
		if script != luajob.PermissionProbe {
			change(script, "redis.call('TIME')", "redis.call('LRANGE', 'clock', 0, 1)")
		}
	}
}

// change replaces a part of a script, and says whether it was there.
func change(script *lua.Script, old, new string) bool {
	source := strings.Replace(script.Source, old, new, 1)
	changed := source != script.Source
	script.Source, script.SHA = source, fmt.Sprintf("%x", sha1.Sum([]byte(source)))
	return changed
}

// onRedis is the scripts on a Redis.
type onRedis struct {
	*job.Store
	client *redis.Client
	mini   bool
}

// runMiniredis starts one that takes the check's script with flags, which miniredis does not know: a
// store at "embedded:" does not ask so.
func runMiniredis(t testing.TB) (addr string) {
	m := miniredis.RunT(t)
	m.Server().SetPreHook(func(c *miniserver.Peer, cmd string, args ...string) bool {
		flagged := cmd == "EVAL" && strings.HasPrefix(args[0], "#!lua ")
		if flagged {
			c.WriteInt(0)
		}
		return flagged
	})
	return m.Addr()
}

// openRedis opens a store on an empty database.
func openRedis(t testing.TB, addr string, db int, mini bool) (_ *onRedis, ns *job.Namespace, closed func()) {
	p := job.DefaultPolicy()
	p.MaxJobs, p.MaxQueues, p.MaxSchedules = mostJobs, 2, mostSchedules
	return openWith(t, addr, db, mini, p)
}

func openWith(t testing.TB, addr string, db int, mini bool, p job.Policy) (_ *onRedis, ns *job.Namespace, closed func()) {
	r := &onRedis{client: redis.NewClient(&redis.Options{Addr: addr, DB: db, DisableIdentity: true}), mini: mini}
	r.client.FlushDB(context.Background())
	r.SetNow(time.Now())
	back, err := backend.Open(backend.Config{URL: fmt.Sprintf("redis://%s/%d", addr, db)}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	backendtest.Patient(back)
	r.Store, err = job.Open(job.Config{Prefix: "sw", Volatile: true, Namespaces: map[string]job.Policy{"mail": p}}, back,
		prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, time.Minute, "the store can be used", func() bool { _, err = r.Check(t.Context()); return !errors.Is(err, backend.ErrUnavailable) })
	if err != nil {
		t.Fatal(err)
	}
	return r, r.Namespace("mail"), func() {
		_ = back.Close()
		_ = r.client.Close()
	}
}

func (r *onRedis) SetNow(t time.Time) {
	pipe := r.client.TxPipeline()
	pipe.Del(context.Background(), "clock")
	pipe.RPush(context.Background(), "clock", t.Unix(), t.Nanosecond()/1000)
	_, _ = pipe.Exec(context.Background())
}

// Schedules reads without the rests that lists have for the sake of others.
func (r *onRedis) Schedules(ctx context.Context, ns *job.Namespace, _, _ string, _ int) ([]job.Schedule, bool, error) {
	names, err := r.client.HKeys(ctx, key("s:"+queue)).Result()
	slices.Sort(names)
	var list []job.Schedule
	for _, name := range names {
		list = append(list, job.Schedule{Queue: queue, Name: name})
	}
	if err == nil && len(list) > 0 {
		err = r.ReadSpecs(ctx, ns, 0, list)
	}
	return list, false, err
}

// account is the sum of the accounts of all schedules.
func (r *onRedis) account() map[string]int64 {
	sum := map[string]int64{}
	for _, text := range r.client.HVals(context.Background(), key("state")).Val() {
		s, _ := schedule.ReadState(text)
		for name, n := range map[string]int64{
			"fired": s.Ticks.Fired, "missed": s.Ticks.Missed, "overlapped": s.Ticks.Overlapped, "paused": s.Ticks.Paused,
			"unregistered": s.Ticks.Unregistered, "superseded": s.Ticks.Superseded,
		} {
			sum[name] += n
		}
	}
	return sum
}

// counts ends the walk where an act moves the account otherwise than the process counts it.
func (r *onRedis) counts(act func()) {
	ns := r.Namespace("mail")
	want, before := r.account(), ns.ScheduleTotals().Ticks
	act()
	after, counted := r.account(), ns.ScheduleTotals().Ticks
	for name := range counted {
		want[name], counted[name] = after[name]-want[name], counted[name]-before[name]
	}
	if !maps.Equal(counted, want) {
		panic(stopped(fmt.Sprintf("the account rose by %v, the process counted %v", want, counted)))
	}
}

func (r *onRedis) Fire(ctx context.Context, ns *job.Namespace, shard int, made int64,
	firings []*job.Firing) (at int64, err error) {
	r.counts(func() { at, err = r.Store.Fire(ctx, ns, shard, made, firings) })
	return at, err
}

func (r *onRedis) PutSchedule(ctx context.Context, p *job.PutSchedule) (err error) {
	r.counts(func() { err = r.Store.PutSchedule(ctx, p) })
	return err
}

// Save is nil on a miniredis, which cannot copy all keys.
func (r *onRedis) Save() any {
	if r.mini {
		return nil
	}
	ctx, saved := context.Background(), map[string]string{}
	for _, key := range r.client.Keys(ctx, "sw:*").Val() {
		saved[key] = r.client.Dump(ctx, key).Val()
	}
	return saved
}

func (r *onRedis) Restore(saved any) {
	ctx := context.Background()
	if keys := r.client.Keys(ctx, "sw:*").Val(); len(keys) > 0 {
		r.client.Del(ctx, keys...)
	}
	for key, dump := range saved.(map[string]string) {
		r.client.Restore(ctx, key, 0, dump)
	}
}

func key(name string) string { return "sw:{mail.0}:" + name }

// Picture is as that of the model.
func (r *onRedis) Picture() (lines []string) {
	ctx, pipe := context.Background(), r.client.TxPipeline()
	states, specs := pipe.HGetAll(ctx, key("state")), pipe.HGetAll(ctx, key("s:"+queue))
	due, jobs := pipe.ZRangeWithScores(ctx, key("due"), 0, -1), pipe.HKeys(ctx, key("j:"+queue))
	ready, dead := pipe.LRange(ctx, key("r:"+queue), 0, -1), pipe.ZRange(ctx, key("d:"+queue), 0, -1)
	leases, queues := pipe.ZRangeWithScores(ctx, key("lease"), 0, -1), pipe.ZRange(ctx, key("queues"), 0, -1)
	owners := pipe.ZRangeWithScores(ctx, key("owners"), 0, -1)
	var owned []*redis.MapStringStringCmd
	for _, owner := range ownerNames {
		owned = append(owned, pipe.HGetAll(ctx, key("o:"+owner)))
	}
	ledger := pipe.HMGet(ctx, key("ledger"), "seq", "published", "acked", "expired", "dead")
	if _, err := pipe.Exec(ctx); err != nil {
		return []string{err.Error()}
	}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for member, text := range states.Val() {
		add("state %s %s", strings.TrimSuffix(member, " "+queue), text)
	}
	for name, spec := range specs.Val() {
		add("spec %s %s", name, spec)
	}
	for _, z := range due.Val() {
		add("due %s %d", strings.TrimSuffix(z.Member.(string), " "+queue), int64(z.Score))
	}
	for _, seq := range jobs.Val() {
		add("job %s", seq)
	}
	for _, z := range leases.Val() {
		add("lease %s %d", strings.TrimSuffix(z.Member.(string), " "+queue), int64(z.Score))
	}
	for _, seq := range dead.Val() {
		add("dead %s", seq)
	}
	for _, z := range owners.Val() {
		add("owner %s %d", z.Member, int64(z.Score))
	}
	for i, fields := range owned {
		for member, version := range fields.Val() {
			add("owned %s %s %s", ownerNames[i], strings.TrimSuffix(member, " "+queue), version)
		}
	}
	add("ready %v", ready.Val())
	total := ledger.Val()
	for i, n := range total {
		if n == nil {
			total[i] = "0"
		}
	}
	add("ledger %s %s %s %s %s", total...)
	for range queues.Val() {
		add("queue")
	}
	slices.Sort(lines)
	return lines
}

// lockstep is the scripts with the model beside them. Each answer must be equal, and after every tenth act all keys.
type lockstep struct {
	*model
	redis *onRedis
	calls int
}

// same compares one answer.
func (l *lockstep) same(verb string, got, want any) {
	l.calls++
	if !reflect.DeepEqual(got, want) {
		panic(stopped(fmt.Sprintf("%s: Redis answers %+v, the model %+v", verb, got, want)))
	}
	if l.calls%10 > 0 {
		return
	}
	if got, want := l.redis.Picture(), l.Picture(); !slices.Equal(got, want) {
		only := func(a, b []string) (rest []string) {
			for _, line := range a {
				if !slices.Contains(b, line) {
					rest = append(rest, line)
				}
			}
			return rest
		}
		panic(stopped(fmt.Sprintf("after %s only Redis has\n%s\nonly the model\n%s", verb, strings.Join(only(got, want), "\n"),
			strings.Join(only(want, got), "\n"))))
	}
}

func (l *lockstep) SetNow(t time.Time) {
	l.model.SetNow(t)
	l.redis.SetNow(t)
}

func (l *lockstep) Save() any {
	saved := l.redis.Save()
	if saved == nil {
		return nil
	}
	return [2]any{saved, l.model.Save()}
}

func (l *lockstep) Restore(saved any) {
	both := saved.([2]any)
	l.redis.Restore(both[0])
	l.model.Restore(both[1])
}

func (l *lockstep) GetSchedule(ctx context.Context, ns *job.Namespace, queue, name string) (job.Schedule, error) {
	want, wantErr := l.model.GetSchedule(ctx, ns, queue, name)
	got, err := l.redis.GetSchedule(ctx, ns, queue, name)
	if err != nil {
		got = want // it says nothing
	}
	l.same("get", []any{got, err}, []any{want, wantErr})
	return got, err
}

func (l *lockstep) PutSchedule(ctx context.Context, p *job.PutSchedule) error {
	want := *p
	wantErr := l.model.PutSchedule(ctx, &want)
	err := l.redis.PutSchedule(ctx, p)
	l.same("put", []any{p.Result, p.Revision, err}, []any{want.Result, want.Revision, wantErr})
	return err
}

func (l *lockstep) PauseSchedule(ctx context.Context, ns *job.Namespace, queue, name string, pause bool) (bool, int64, error) {
	wantChanged, wantRevision, wantErr := l.model.PauseSchedule(ctx, ns, queue, name, pause)
	changed, revision, err := l.redis.PauseSchedule(ctx, ns, queue, name, pause)
	l.same("pause", []any{changed, revision, err}, []any{wantChanged, wantRevision, wantErr})
	return changed, revision, err
}

func (l *lockstep) DeleteSchedule(ctx context.Context, ns *job.Namespace, queue, name, owner string, below int64) error {
	want := l.model.DeleteSchedule(ctx, ns, queue, name, owner, below)
	err := l.redis.DeleteSchedule(ctx, ns, queue, name, owner, below)
	l.same("delete", err, want)
	return err
}

func (l *lockstep) Register(ctx context.Context, ns *job.Namespace, owner string, version int64, ttl time.Duration) (job.Owner, error) {
	want, wantErr := l.model.Register(ctx, ns, owner, version, ttl)
	o, err := l.redis.Register(ctx, ns, owner, version, ttl)
	if err != nil {
		o = want // it says nothing
	}
	l.same("register", []any{o, err}, []any{want, wantErr})
	return o, err
}

func (l *lockstep) Heartbeat(ctx context.Context, ns *job.Namespace, owner string, ttl time.Duration) (job.Owner, error) {
	want, wantErr := l.model.Heartbeat(ctx, ns, owner, ttl)
	o, err := l.redis.Heartbeat(ctx, ns, owner, ttl)
	if err != nil {
		o = want
	}
	l.same("heartbeat", []any{o, err}, []any{want, wantErr})
	return o, err
}

func (l *lockstep) Deregister(ctx context.Context, ns *job.Namespace, owner string) error {
	want, err := l.model.Deregister(ctx, ns, owner), l.redis.Deregister(ctx, ns, owner)
	l.same("deregister", err, want)
	return err
}

func (l *lockstep) Forget(ctx context.Context, ns *job.Namespace, owner string) error {
	want, err := l.model.Forget(ctx, ns, owner), l.redis.Forget(ctx, ns, owner)
	l.same("forget", err, want)
	return err
}

func (l *lockstep) Owners(ctx context.Context, ns *job.Namespace) ([]job.Owner, error) {
	want, _ := l.model.Owners(ctx, ns)
	got, err := l.redis.Owners(ctx, ns)
	l.same("owners", []any{got, err}, []any{want, nil})
	return got, errors.Join(err, l.CountOwned(ctx, ns, slices.Clone(got)))
}

func (l *lockstep) CountOwned(ctx context.Context, ns *job.Namespace, list []job.Owner) error {
	want := slices.Clone(list)
	_ = l.model.CountOwned(ctx, ns, want)
	err := l.redis.CountOwned(ctx, ns, list)
	l.same("owners with their schedules", []any{list, err}, []any{want, nil})
	return err
}

func (l *lockstep) Owned(ctx context.Context, ns *job.Namespace, owner string) ([]job.OwnedSchedule, error) {
	want, _ := l.model.Owned(ctx, ns, owner)
	got, err := l.redis.Owned(ctx, ns, owner)
	l.same("owned", []any{got, err}, []any{want, nil})
	return got, err
}

func (l *lockstep) DueSchedules(ctx context.Context, ns *job.Namespace, shard, skip,
	limit int) (int64, []job.DueSchedule, error) {
	wantNow, want, _ := l.model.DueSchedules(ctx, ns, shard, skip, limit)
	now, got, err := l.redis.DueSchedules(ctx, ns, shard, skip, limit)
	l.same("due_page", []any{now, len(got), err}, []any{wantNow, len(want), nil})
	for i := range got {
		l.same("due_page", got[i], want[i])
	}
	return now, got, err
}

func (l *lockstep) Fire(ctx context.Context, ns *job.Namespace, shard int, made int64, firings []*job.Firing) (int64, error) {
	var want []*job.Firing
	for _, f := range firings {
		c := *f
		want = append(want, &c)
	}
	wantAt, _ := l.model.Fire(ctx, ns, shard, made, want)
	at, err := l.redis.Fire(ctx, ns, shard, made, firings)
	l.same("fire", []any{at, firings, err}, []any{wantAt, want, nil})
	return at, err
}

func (l *lockstep) Trigger(ctx context.Context, t *job.Trigger) error {
	want := *t
	wantErr := l.model.Trigger(ctx, &want)
	err := l.redis.Trigger(ctx, t)
	if err == nil && t.TTL > 0 && !t.Repeated {
		// The ttl of a triggered job counts from when its process knew the time: what Redis stores is the truth.
		for seq := t.First; seq < t.First+int64(t.Count); seq++ {
			record, _ := l.redis.client.HGet(ctx, key("j:"+queue), fmt.Sprint(seq)).Result()
			j := l.jobs[seq]
			_, _ = fmt.Sscanf(record, "%d ", &j.ends)
			l.jobs[seq] = j
		}
	}
	l.same("trigger", []any{t.First, t.Count, t.Repeated, err}, []any{want.First, want.Count, want.Repeated, wantErr})
	return err
}

func (l *lockstep) Run(ctx context.Context, lane *job.Lane, b *job.Batch) {
	var claims []*job.Claim
	for _, c := range b.Claims {
		claims = append(claims, &job.Claim{Count: c.Count, TTR: c.TTR})
	}
	l.model.Run(ctx, lane, &job.Batch{Acks: b.Acks, Settles: b.Settles, Claims: claims})
	l.redis.Run(ctx, lane, b)
	jobs := func(list []*job.Claim) (lines []string) {
		for _, c := range list {
			for _, j := range c.Jobs {
				lines = append(lines, fmt.Sprintf("%d %d %s %s", j.Seq, j.Attempt, j.Attributes, j.Payload))
			}
		}
		return lines
	}
	l.same("claim, ack and bury", jobs(b.Claims), jobs(claims))
}

func (l *lockstep) Ledger(ctx context.Context, ns *job.Namespace) (job.Ledger, error) {
	want, _ := l.model.Ledger(ctx, ns)
	got, err := l.redis.Ledger(ctx, ns)
	got.Died, got.Keys = 0, 0
	l.same("ledger", []any{got, err}, []any{want, nil})
	return got, err
}

// stopped ends a walk that found something.
type stopped string

// walk is what a walk finds; "": nothing.
func walk(t testing.TB, seed uint64, bug string, open func() (server, *job.Namespace, *job.Lane)) (found string) {
	w := newWorld(t, seed, open)
	w.bug = bug
	w.fail = func(format string, args ...any) { panic(stopped(fmt.Sprintf(format, args...))) }
	defer func() {
		switch r := recover().(type) {
		case nil:
		case stopped:
			found = string(r)
			if !strings.Contains(found, "\n") || strings.HasPrefix(found, "after") {
				found = strings.Join(w.history[max(0, len(w.history)-20):], "\n") + "\n" + found
			}
		default:
			panic(r)
		}
	}()
	for range walkSteps {
		w.step()
	}
	return ""
}

// side is the namespace of walks of the model, which nothing but its name is asked of.
var side = sync.OnceValue(func() *job.Namespace {
	back, err := backend.Open(backend.Config{URL: "redis://127.0.0.1:1"}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		panic(err)
	}
	defer func() { _ = back.Close() }()
	store, err := job.Open(job.Config{Prefix: "sw", Namespaces: map[string]job.Policy{"mail": job.DefaultPolicy()}}, back,
		prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		panic(err)
	}
	return store.Namespace("mail")
})

func openModel() (server, *job.Namespace, *job.Lane) { return newModel(), side(), nil }

// length is how many walks there are: with -short a part of those that a flag says.
func length(walks, part uint64) uint64 {
	if testing.Short() {
		return walks / part
	}
	return walks
}

// each takes walks side by side until one finds something.
func each(t *testing.T, walks uint64, workers int, walk func(worker int, seed uint64) (found string)) {
	var next atomic.Uint64
	next.Store(*firstWalk)
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for !t.Failed() {
				seed := next.Add(1) - 1
				if seed >= *firstWalk+walks {
					return
				}
				if found := walk(worker, seed); found != "" {
					t.Errorf("walk %d: %s", seed, found)
				}
			}
		})
	}
	all.Wait()
}

// Walks of users, processes that stall, repeat and die, clocks that step, stores that go back, and workers.
func TestEachTickIsPublishedOnceAndAccounted(t *testing.T) {
	t.Parallel()
	each(t, length(*walks, 10), 2, func(_ int, seed uint64) string { return walk(t, seed, "", openModel) })
}

// Redis decides what is right; miniredis must give the same answers and keys.
func TestScriptsFollowTheModel(t *testing.T) {
	t.Parallel()
	for kind, count := range map[string]uint64{"redis": *lockstepWalks, "miniredis": *miniWalks} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			addr := ""
			if kind == "redis" {
				addr = redistest.Start(t).Addr
			} else {
				addr = runMiniredis(t)
			}
			var calls atomic.Int64
			each(t, length(count, 4), 3, func(worker int, seed uint64) string {
				l := &lockstep{model: newModel()}
				var ns *job.Namespace
				var closed func()
				l.redis, ns, closed = openRedis(t, addr, worker, kind == "miniredis")
				defer closed()
				found := walk(t, seed, "", func() (server, *job.Namespace, *job.Lane) { return l, ns, l.redis.NewLane() })
				calls.Add(int64(l.calls))
				return found
			})
			t.Logf("%d walks, %d answers compared", count, calls.Load())
		})
	}
}

// bug is a mistake in a script: a part of it has another text.
type bug struct {
	script   *lua.Script
	old, new string
}

var scriptBugs = map[string]bug{
	"fires whatever the state is":             {luajob.Fire, "found[y] == old", "found[y]"},
	"fires by a plan from behind the clock":   {luajob.Fire, "now < made or now", "now"},
	"fires by a plan that is too old":         {luajob.Fire, "or now > made + 5000", ""},
	"fires beside an unfinished run":          {luajob.Fire, "overlap ~= 'allow' and s.count > 0", "false"},
	"fires two runs of a call beside another": {luajob.Fire, "busy = overlap ~= 'allow'", "busy = false"},
	"asks only the first job of a run":        {luajob.Fire, "s.first + s.count - 1", "s.first"},
	"takes a dead job for unfinished":         {luajob.Fire, " and not redis.call('ZSCORE', d, ref)", ""},
	"takes sequences from the clock":          {luajob.Fire, "math.max(now_us, v[1] + 1)", "now_us"},
	"an ended schedule stays due":             {luajob.Fire, "if p.s.flag == 'a' then", "if true then"},
	"forgets missed ticks":                    {luajob.Fire, "s.missed + f.missed", "s.missed"},
	"forgets paused ticks":                    {luajob.Fire, "s.paused + f.paused", "s.paused"},
	"forgets ticks that overlap":              {luajob.Fire, "s.overlapped = s.overlapped + 1", "s.overlapped = s.overlapped"},
	"forgets the tick that waits":             {luajob.Fire, "overlap == 'buffer' and s.waiting == 0", "overlap == 'buffer'"},
	"publishes the tick that waits again":     {luajob.Fire, "if go then\n          s.waiting = 0\n", "if go then\n          s.waiting = run.tick\n"},
	"swallows a tick without room":            {luajob.Fire, "          next_tick = run.tick\n", "          next_tick = next_tick\n"},
	"goes over max_jobs":                      {luajob.Fire, "x.live + m > max_jobs", "false"},
	"does not count what it publishes":        {luajob.Fire, "x.published + m, x.live + m", "x.published, x.live + m"},
	"counts a run twice":                      {luajob.Fire, "s.fired + 1", "s.fired + 2"},
	"goes over max_runs":                      {luajob.Fire, "left - 1", "left"},
	"a put whatever the state is":             {luajob.PutSchedule, "(text or '') ~= ARGV[3]", "false"},
	"the same specification begins anew":      {luajob.PutSchedule, "s and s.tag == ARGV[5]", "false"},
	"a put swallows a due tick":               {luajob.PutSchedule, "first > 0 and first <= now or open > 0 and open <= now", "false"},
	"a put forgets the tick that waits":       {luajob.PutSchedule, "given_up, s.waiting = given_up + 1, 0", "s.waiting = 0"},
	"a put forgets the ticks of a pause":      {luajob.PutSchedule, "s.paused + given_up, 0", "s.paused, 0"},
	"a put goes over max_schedules":           {luajob.PutSchedule, "redis.call('HLEN', states) >= max", "false"},
	"a pause forgets the tick that waits":     {luajob.PauseSchedule, "s.waiting, s.paused = 0, s.paused + 1", "s.waiting = 0"},
	"a pause leaves it due":                   {luajob.PauseSchedule, "redis.call('ZREM', KEYS[2], ARGV[1])", "local _ = 0"},
	"a resume fires what came due meanwhile":  {luajob.PauseSchedule, "s.flag, s.till = 'a', now", "s.flag = 'a'"},
	"a resume forgets that it is due":         {luajob.PauseSchedule, "redis.call('ZADD', KEYS[2], int(now), ARGV[1])", "local _ = 0"},
	"a trigger goes over max_jobs":            {luajob.Trigger, "x.live + count > max_jobs", "false"},
	"a trigger repeats itself":                {luajob.Trigger, "elseif before then", "elseif false then"},
	"a trigger does not count its jobs":       {luajob.Trigger, "'published', int(x.published + count)", "'published', int(x.published)"},
	"a trigger moves the next tick":           {luajob.Trigger, "if not unfinished then", "s.next = s.next + 1\nif not unfinished then"},
	"a delete leaves the specification":       {luajob.DeleteSchedule, "redis.call('HDEL', KEYS[3], ARGV[i])", "local _ = 0"},
	"fires for an owner that is gone":         {luajob.Fire, "f.owner ~= '' and left", "false and left"},
	"an owner lives for ever":                 {luajob.Fire, "f.owner) or -1)) < now", "f.owner) or -1)) < 0"},
	"forgets ticks without an owner":          {luajob.Fire, "s.unregistered + 1", "s.unregistered"},
	"the waiting tick of an owner that left":  {luajob.Fire, "        if run.cause == 'w' then\n          s.waiting = 0\n        end\n      elseif", "      elseif"},
	"an old version puts":                     {luajob.PutSchedule, "not registered or registered > (whole(ARGV[11], 0) or -1)", "false"},
	"a put forgets whose it is":               {luajob.PutSchedule, "if owned then\n  redis.call('HSET', own, ARGV[1], ARGV[11])", "if false then"},
	"the same again leaves the old version":   {luajob.PutSchedule, "  if owned then\n    redis.call('HSET', own, ARGV[1], ARGV[11])", "  if false then"},
	"an old version registers":                {luajob.Register, "version ~= '' and whole(version, 0) < before", "false"},
	"a late heartbeat shortens":               {luajob.Register, "math.max(till, now + ttl)", "now + ttl"},
	"an owner that left comes back":           {luajob.Register, "ttl > 0 and till == 0", "false"},
	"a registration forgets its version":      {luajob.Register, "redis.call('HSET', own, 'version', version)", "local _ = 0"},
	"a delete of a newer version's":           {luajob.DeleteSchedule, "if goes and spec and below >= 0 then", "if false then"},
	"a delete of another's":                   {luajob.DeleteSchedule, "owner_of(spec) == owner", "true"},
	"a delete leaves it to its owner":         {luajob.DeleteSchedule, "redis.call('HDEL', KEYS[4], member)", "local _ = 0"},
	"a delete leaves it due":                  {luajob.DeleteSchedule, "redis.call('ZREM', KEYS[2], member)", "local _ = 0"},
}

var processBugs = []string{
	"a plan forgets the pause", "a plan by the specification of another", "a plan without jitter",
	"a plan runs ticks that are to come", "a plan passes over a tick", "a plan forgets what was missed",
	"a plan runs its last tick twice", "a plan ends a schedule too soon",
}

// bugWalks are how many walks a mistake has, to be found.
const bugWalks = 200

// firstWalks are the first walks that find a mistake, where that is not the first of all.
var firstWalks = map[string]uint64{
	"a put goes over max_schedules": 1, "a trigger repeats itself": 1, "an ended schedule stays due": 1,
	"counts a run twice": 1, "does not count what it publishes": 1, "fires beside an unfinished run": 1,
	"forgets paused ticks": 1, "goes over max_runs": 1, "a pause forgets the tick that waits": 2,
	"a plan runs ticks that are to come": 2, "a plan without jitter": 2, "a put swallows a due tick": 2,
	"fires two runs of a call beside another": 2, "a delete of a newer version's": 3,
	"a plan forgets what was missed": 3, "a put whatever the state is": 3, "forgets missed ticks": 3,
	"the same again leaves the old version": 3, "a resume fires what came due meanwhile": 4,
	"a trigger goes over max_jobs": 4, "goes over max_jobs": 4, "swallows a tick without room": 4,
	"takes sequences from the clock": 4, "publishes the tick that waits again": 7, "an old version puts": 9,
	"a plan forgets the pause": 13, "fires by a plan from behind the clock": 15, "fires by a plan that is too old": 19,
	"a put forgets the tick that waits": 22, "asks only the first job of a run": 22,
	"the waiting tick of an owner that left": 22, "takes a dead job for unfinished": 25,
}

// Each of these mistakes in a script, made on purpose, breaks a promise in a walk that knows nothing of the model. The test
// runs alone: it changes the scripts.
func TestWalksFindMistakesInTheScripts(t *testing.T) {
	addr := redistest.Start(t).Addr
	bugs := scripttest.Bugs(scriptBugs, func(b bug) string { return b.script.Name })
	for _, name := range slices.Sorted(maps.Keys(bugs)) {
		b := bugs[name]
		right := *b.script
		if !change(b.script, b.old, b.new) {
			t.Errorf("%s: %s is not in the script", name, b.old)
			continue
		}
		found := ""
		for seed := firstWalks[name]; seed < firstWalks[name]+bugWalks && found == ""; seed++ {
			r, ns, closed := openRedis(t, addr, 0, false)
			found = walk(t, seed, "", func() (server, *job.Namespace, *job.Lane) { return r, ns, r.NewLane() })
			closed()
			if found != "" {
				t.Logf("%s: walk %d: %s", name, seed, found[strings.LastIndex(found, "\n")+1:])
			}
		}
		*b.script = right
		if found == "" {
			t.Errorf("%s: no walk found it", name)
		}
	}
}

// The same of mistakes in a process.
func TestWalksFindMistakesInPlans(t *testing.T) {
	t.Parallel()
	for _, bug := range processBugs {
		found := ""
		for seed := firstWalks[bug]; seed < firstWalks[bug]+bugWalks && found == ""; seed++ {
			if found = walk(t, seed, bug, openModel); found != "" {
				t.Logf("%s: walk %d: %s", bug, seed, found[strings.LastIndex(found, "\n")+1:])
			}
		}
		if found == "" {
			t.Errorf("%s: no walk found it", bug)
		}
	}
}
