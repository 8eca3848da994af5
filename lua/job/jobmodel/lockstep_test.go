package jobmodel_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/job/jobmodel"
	"github.com/spillway-io/spillway/lua/redistest"
)

var (
	lockstepWalks = flag.Int64("lockstep", 40, "random walks of the scripts beside the model of queues, on redis-server")
	miniWalks     = flag.Int64("lockstep.mini", 15, "the same on miniredis")
	firstLockstep = flag.Int64("lockstep.from", 0, "seed of the first such walk")
	lookEvery     = flag.Int("lockstep.look", 4, "calls until the keys are compared again; 1 names the call that went wrong")
)

// length is how many walks there are: with -short a part of those that a flag says.
func length(walks, part int64) int64 {
	if testing.Short() {
		return walks / part
	}
	return walks
}

// lockstep is the scripts with the model beside them. After each call the replies and the wakes
// must be equal; after some and the last one all keys, in which it stays what went wrong.
type lockstep struct {
	model   *jobmodel.Shard
	scripts *scripts
	calls   int
}

// same compares one call. wakes are those that the model had before it.
func (l *lockstep) same(verb string, got, want any, wakes int) {
	if !reflect.DeepEqual(got, want) {
		panic(jobmodel.Broken("%s: Redis answers %+v, the model %+v", verb, got, want))
	}
	var wanted []string
	for _, m := range l.model.Wakes[wakes:] {
		wanted = append(wanted, fmt.Sprintf("publish %s %d", m.Queue, m.Count))
	}
	if sent := l.scripts.wakes(); !slices.Equal(sent, wanted) {
		panic(jobmodel.Broken("%s: Redis wakes %v, the model %v", verb, sent, wanted))
	}
	if l.calls++; l.calls%*lookEvery == 0 {
		if err := l.look(verb); err != nil {
			panic(err)
		}
	}
}

// look compares the keys.
func (l *lockstep) look(verb string) error {
	keys := l.scripts.picture()
	if model := l.model.Picture(); !slices.Equal(keys, model) {
		only := func(a, b []string) (rest []string) {
			for _, line := range a {
				if !slices.Contains(b, line) {
					rest = append(rest, line)
				}
			}
			return rest
		}
		return jobmodel.Broken("%s: only Redis has %q, only the model has %q", verb, only(keys, model), only(model, keys))
	}
	return nil
}

func (l *lockstep) Publish(quota jobmodel.Quota, groups []jobmodel.Publish) []jobmodel.Stored {
	wakes, want := len(l.model.Wakes), l.model.Publish(quota, groups)
	l.same("publish", l.scripts.Publish(quota, groups), want, wakes)
	return want
}

func (l *lockstep) Limit(queue string, limit int) {
	l.model.Limit(queue, limit)
	l.scripts.limits[queue] = limit
}

func (l *lockstep) Keep(queue string, keep jobmodel.Keep) {
	l.model.Keep(queue, keep)
	l.scripts.keeping[queue] = keep
}

func (l *lockstep) GetKept(ref jobmodel.Ref) jobmodel.Kept {
	wakes, want := len(l.model.Wakes), l.model.GetKept(ref)
	l.same("get of a kept one", l.scripts.GetKept(ref), want, wakes)
	return want
}

func (l *lockstep) DropKept(queue string, all bool) int {
	wakes, want := len(l.model.Wakes), l.model.DropKept(queue, all)
	l.same("drop_kept", l.scripts.DropKept(queue, all), want, wakes)
	return want
}

func (l *lockstep) Claim(lane, token string, maxBytes int, claims []jobmodel.Claim, reportLeft map[string]bool) jobmodel.ClaimReply {
	wakes, want := len(l.model.Wakes), l.model.Claim(lane, token, maxBytes, claims, reportLeft)
	l.same("claim", l.scripts.Claim(lane, token, maxBytes, claims, reportLeft), want, wakes)
	return want
}

func (l *lockstep) Ack(groups []jobmodel.AckGroup) []int {
	wakes, want := len(l.model.Wakes), l.model.Ack(groups)
	l.same("ack", l.scripts.Ack(groups), want, wakes)
	return want
}

func (l *lockstep) Settle(jobs []jobmodel.Settle) []jobmodel.State {
	wakes, want := len(l.model.Wakes), l.model.Settle(jobs)
	l.same("settle", l.scripts.Settle(jobs), want, wakes)
	return want
}

func (l *lockstep) Revert(lane, token string, queues []string) int {
	wakes, want := len(l.model.Wakes), l.model.Revert(lane, token, queues)
	l.same("revert", l.scripts.Revert(lane, token, queues), want, wakes)
	return want
}

func (l *lockstep) Due() []jobmodel.Due {
	wakes, want := len(l.model.Wakes), l.model.Due()
	l.same("due", l.scripts.Due(), want, wakes)
	return want
}

func (l *lockstep) Promote(due []jobmodel.Due) jobmodel.Promoted {
	wakes, want := len(l.model.Wakes), l.model.Promote(due)
	l.same("promote", l.scripts.Promote(due), want, wakes)
	return want
}

func (l *lockstep) Respawn(queue, verb string, d jobmodel.DeadSelection, ttl int64) (count int, found string) {
	wakes := len(l.model.Wakes)
	count, found = l.model.Respawn(queue, verb, d, ttl)
	got, which := l.scripts.Respawn(queue, verb, d, ttl)
	l.same(verb+" dead", []any{got, which}, []any{count, found}, wakes)
	return count, found
}

func (l *lockstep) Purge(queue string, all bool, limit int) (looked, deleted int) {
	wakes := len(l.model.Wakes)
	looked, deleted = l.model.Purge(queue, all, limit)
	a, b := l.scripts.Purge(queue, all, limit)
	l.same("purge", []int{a, b}, []int{looked, deleted}, wakes)
	return looked, deleted
}

func (l *lockstep) Expire(queue string) jobmodel.Swept {
	wakes, want := len(l.model.Wakes), l.model.Expire(queue)
	l.same("expire", l.scripts.Expire(queue), want, wakes)
	return want
}

func (l *lockstep) Peek(queue string) *jobmodel.Claimed {
	wakes, want := len(l.model.Wakes), l.model.Peek(queue)
	l.same("peek", l.scripts.Peek(queue), want, wakes)
	return want
}

func (l *lockstep) Dead(queue string, limit int) []jobmodel.Claimed {
	wakes, want := len(l.model.Wakes), l.model.Dead(queue, limit)
	l.same("dead_page", l.scripts.Dead(queue, limit), want, wakes)
	return want
}

func (l *lockstep) Get(ref jobmodel.Ref) (*jobmodel.Claimed, jobmodel.State) {
	wakes := len(l.model.Wakes)
	want, state := l.model.Get(ref)
	job, got := l.scripts.Get(ref)
	l.same("get", []any{job, got}, []any{want, state}, wakes)
	return want, state
}

func (l *lockstep) Counts(queue string) jobmodel.Counts {
	wakes, want := len(l.model.Wakes), l.model.Counts(queue)
	l.same("counts", l.scripts.Counts(queue), want, wakes)
	return want
}

func (l *lockstep) Pause(queue, by string) {
	wakes := len(l.model.Wakes)
	l.model.Pause(queue, by)
	l.scripts.Pause(queue, by)
	l.same("pause", nil, nil, wakes)
}

func (l *lockstep) Resume(queue string) {
	wakes := len(l.model.Wakes)
	l.model.Resume(queue)
	l.scripts.Resume(queue)
	l.same("resume", nil, nil, wakes)
}

func (l *lockstep) List(queue string, state jobmodel.State, limit int, at, last string) jobmodel.Page {
	wakes, want := len(l.model.Wakes), l.model.List(queue, state, limit, at, last)
	got := l.scripts.List(queue, state, limit, at, last)
	if want.At == "" { // the last page may say that there may be more, and that is empty
		got.At, got.Last = "", ""
	}
	l.same("list", got, want, wakes)
	return want
}

func (l *lockstep) Account() []int64 {
	wakes, want := len(l.model.Wakes), l.model.Account()
	l.same("ledger", l.scripts.Account(), append(want[:len(want):len(want)], 0, l.model.Ledger["kept"]), wakes) // the model prepares no job
	return want
}

func (l *lockstep) SetNow(us int64) { l.model.SetNow(us); l.scripts.SetNow(us) }

func (l *lockstep) Vanish(ref jobmodel.Ref) { l.model.Vanish(ref); l.scripts.Vanish(ref) }

func (l *lockstep) Unlist(ref jobmodel.Ref) { l.model.Unlist(ref); l.scripts.Unlist(ref) }

// walkInLockstep takes one walk on an empty database, and says how many calls it compared.
func walkInLockstep(client *redis.Client, texts map[string]*redis.Script, seed int64, setting jobmodel.Setting) (calls int, err error) {
	client.FlushDB(context.Background())
	m := jobmodel.NewShard(jobmodel.Start, jobmodel.Keeps, "")
	l := &lockstep{model: m, scripts: &scripts{client: client, prefix: "sw:{walk.0}:", source: texts, lanes: map[string]bool{}, limits: map[string]int{}, keeping: map[string]jobmodel.Keep{}, uniques: map[string]int64{}}}
	l.SetNow(jobmodel.Start)
	err = jobmodel.NewWorld(seed, setting, l, m).Walk(200)
	if err == nil {
		err = l.look("the last call")
	}
	return l.calls, err
}

// Redis decides what is right; miniredis must give the same replies and keys.
func TestScriptsFollowTheModel(t *testing.T) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		followTheModel(t, redistest.Start(t).Addr, length(*lockstepWalks, 6))
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		followTheModel(t, miniredis.RunT(t).Addr(), length(*miniWalks, 6))
	})
}

func followTheModel(t *testing.T, addr string, count int64) {
	texts := testTexts(t, nil)
	var next, calls atomic.Int64
	next.Store(*firstLockstep)
	var workers sync.WaitGroup
	for db := range 3 {
		client := redis.NewClient(&redis.Options{Addr: addr, DB: db, DisableIdentity: true})
		t.Cleanup(func() { _ = client.Close() })
		workers.Go(func() {
			for !t.Failed() {
				seed := next.Add(1) - 1
				if seed >= *firstLockstep+count {
					return
				}
				n, err := walkInLockstep(client, texts, seed, jobmodel.Setting{Busy: seed%2 == 1})
				calls.Add(int64(n))
				if err != nil {
					t.Errorf("walk %d: %v", seed, err)
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d walks, %d calls compared", count, calls.Load())
}

var (
	walks     = flag.Int64("walks", 3000, "random walks of the model of queues")
	firstWalk = flag.Int64("walks.from", 0, "seed of the first walk")
	walkSteps = flag.Int("walks.steps", 250, "steps of a walk")
	traceWalk = flag.Bool("walks.trace", false, "print each call of the walks")
)

func modelWorld(seed int64, setting jobmodel.Setting) *jobmodel.World {
	m := jobmodel.NewShard(jobmodel.Start, jobmodel.Keeps, setting.Bug)
	return jobmodel.NewWorld(seed, setting, m, m)
}

// Each walk is a world of clients, operators and faults around the model; it wants
// every promise of lua/DESIGN.md kept after each call.
func TestWalksKeepEveryPromise(t *testing.T) {
	t.Parallel()
	walks := length(*walks, 20)
	var next atomic.Int64
	var mu sync.Mutex
	count := map[string]int{}
	next.Store(*firstWalk)
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for !t.Failed() {
				seed := next.Add(1) - 1
				if seed >= *firstWalk+walks {
					return
				}
				w := modelWorld(seed, jobmodel.Setting{})
				if *traceWalk {
					w.Trace = t.Logf
				}
				if err := w.Walk(*walkSteps); err != nil {
					t.Errorf("walk %d: %v", seed, err)
				}
				mu.Lock()
				for what, n := range w.Count {
					count[what] += n
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Log(count)
	if walks < 1000 {
		return
	}
	for _, what := range []string{"revert", "given back", "crash", "clock back", "vanished", "found", "purge", "respawn", "claim unknown", "publish unknown"} {
		if count[what] == 0 {
			t.Errorf("no walk had this: %s; there were %v", what, slices.Sorted(maps.Keys(count)))
		}
	}
}

// firstWalks are the first walks that find a bug, where those before it find nothing for long.
var firstWalks = map[string]int64{
	"revert ignores the deadline": 10, "a resume wakes nobody": 15, "a requeue keeps the progress": 20,
	"purge does not count": 27, "revert counts the attempt": 30, "a list counts from its head": 57,
	"claims are not counted for lists": 57, "a lapse counts as a nack": 71,
	"the first progress is kept": 76, "the first error is kept": 191,
}

// A walk with a mistake in it must break a promise: otherwise the walks prove less
// than they seem to.
func TestWalksFindEverySeededBug(t *testing.T) {
	t.Parallel()
	for _, bug := range jobmodel.Bugs {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			for n := range int64(5000) {
				seed := firstWalks[bug] + n
				if err := modelWorld(seed, jobmodel.Setting{Bug: bug}).Walk(250); err != nil {
					t.Logf("walk %d: %v", seed, err)
					return
				}
			}
			t.Error("5,000 walks kept every promise")
		})
	}
}
