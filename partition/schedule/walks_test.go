package schedule_test

import (
	"context"
	"crypto/sha1"
	"errors"
	"flag"
	"fmt"
	"maps"
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
	walks     = flag.Uint64("walks", 40, "random walks of schedules, on redis-server")
	miniWalks = flag.Uint64("walks.mini", 4, "the same on miniredis")
	firstWalk = flag.Uint64("walks.from", 0, "seed of the first walk of each kind")
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
	return openWith(t, addr, db, mini, p, nil)
}

func openWith(t testing.TB, addr string, db int, mini bool, p job.Policy, rates job.TakeRate) (_ *onRedis, ns *job.Namespace, closed func()) {
	r := &onRedis{client: redis.NewClient(&redis.Options{Addr: addr, DB: db, DisableIdentity: true}), mini: mini}
	r.client.FlushDB(context.Background())
	r.SetNow(time.Now())
	back := backendtest.Open(t, backend.Config{URL: fmt.Sprintf("redis://%s/%d", addr, db)})
	var err error
	r.Store, err = job.Open(job.Config{Prefix: "sw", Volatile: true, Namespaces: map[string]job.Policy{"mail": p}, TakeRate: rates}, back,
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

// stopped ends a walk that found something.
type stopped string

// walk is what a walk on an empty database finds; "": nothing.
func walk(t testing.TB, seed uint64, bug, addr string, db int, mini bool) (found string) {
	store, ns, closed := openRedis(t, addr, db, mini)
	defer closed()
	w := newWorld(t, seed, store, ns)
	w.bug = bug
	defer func() {
		switch r := recover().(type) {
		case nil:
		case stopped:
			found = strings.Join(w.history[max(0, len(w.history)-40):], "\n") + "\n" + string(r)
		default:
			panic(r)
		}
	}()
	for range walkSteps {
		w.step()
	}
	return ""
}

// length is how many walks there are: with -short a part of those that a flag says.
func length(walks, part uint64) uint64 {
	if testing.Short() {
		return walks / part
	}
	return walks
}

// each takes walks side by side until one finds something.
func each(t *testing.T, walks uint64, walk func(worker int, seed uint64) (found string)) {
	var next atomic.Uint64
	next.Store(*firstWalk)
	var all sync.WaitGroup
	for worker := range 3 {
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
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		addr := redistest.Start(t).Addr
		each(t, length(*walks, 10), func(db int, seed uint64) string { return walk(t, seed, "", addr, db, false) })
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		addr := runMiniredis(t)
		each(t, length(*miniWalks, 4), func(db int, seed uint64) string { return walk(t, seed, "", addr, db, true) })
	})
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
	"fires beside an unfinished run":          {luajob.Fire, "f.overlap ~= 'allow' and s.count > 0", "false"},
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
	"a plan by the specification of another": 1, "a put goes over max_schedules": 1, "a trigger repeats itself": 1,
	"an ended schedule stays due": 1, "counts a run twice": 1, "does not count what it publishes": 1,
	"fires beside an unfinished run": 1, "forgets paused ticks": 1, "goes over max_runs": 1,
	"the same specification begins anew": 1, "a pause forgets the tick that waits": 2,
	"a plan runs ticks that are to come": 2, "a plan without jitter": 2, "a put swallows a due tick": 2,
	"fires two runs of a call beside another": 2, "a delete of a newer version's": 3,
	"a plan forgets what was missed": 3, "an owner lives for ever": 3, "fires for an owner that is gone": 3,
	"forgets missed ticks": 3, "forgets ticks without an owner": 3, "the same again leaves the old version": 3,
	"a resume fires what came due meanwhile": 4, "a trigger goes over max_jobs": 4, "goes over max_jobs": 4,
	"swallows a tick without room": 4, "takes sequences from the clock": 4, "a put whatever the state is": 6,
	"publishes the tick that waits again": 11, "an old version puts": 12, "a plan forgets the pause": 13,
	"fires by a plan from behind the clock": 15, "fires by a plan that is too old": 19,
	"asks only the first job of a run": 33, "takes a dead job for unfinished": 33,
	"the waiting tick of an owner that left": 34, "a put forgets the tick that waits": 35,
}

// Each of these mistakes in a script, made on purpose, breaks a promise in a walk. The test
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
			if found = walk(t, seed, "", addr, 0, false); found != "" {
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
	addr := redistest.Start(t).Addr
	for _, bug := range processBugs {
		found := ""
		for seed := firstWalks[bug]; seed < firstWalks[bug]+bugWalks && found == ""; seed++ {
			if found = walk(t, seed, bug, addr, 0, false); found != "" {
				t.Logf("%s: walk %d: %s", bug, seed, found[strings.LastIndex(found, "\n")+1:])
			}
		}
		if found == "" {
			t.Errorf("%s: no walk found it", bug)
		}
	}
}
