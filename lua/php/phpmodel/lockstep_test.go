package phpmodel

import (
	"flag"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
)

var (
	lockstepWalks = flag.Int64("lockstep", 24, "random walks of the scripts beside the model of PHP's queues, on redis-server")
	miniWalks     = flag.Int64("lockstep.mini", 9, "the same on miniredis")
	firstLockstep = flag.Int64("lockstep.from", 0, "seed of the first such walk")
)

// lockstep is the scripts with the model beside them. After each call the replies and the
// keys must be equal.
type lockstep struct {
	*Queue
	scripts *scripts
	calls   int
}

func (l *lockstep) same(verb string, got, want any) {
	l.calls++
	if !reflect.DeepEqual(got, want) {
		broken("%s: Redis answers %+v, the model %+v", verb, got, want)
	}
	keys, model := l.scripts.picture(), l.Queue.picture()
	if slices.Equal(keys, model) {
		return
	}
	only := func(a, b []string) (rest []string) {
		for _, line := range a {
			if !slices.Contains(b, line) {
				rest = append(rest, line)
			}
		}
		return rest
	}
	broken("%s: only Redis has %q, only the model has %q", verb, only(keys, model), only(model, keys))
}

func (l *lockstep) setNow(us int64) { l.Queue.setNow(us); l.scripts.setNow(us) }

func (l *lockstep) publish(delay int64, key string, payloads []string) (state, count int) {
	state, count = l.Queue.publish(delay, key, payloads)
	a, b := l.scripts.publish(delay, key, payloads)
	l.same("publish", []int{a, b}, []int{state, count})
	return state, count
}

func (l *lockstep) claim(lane, token string, ttr int64, count int, steal bool) claimed {
	want := l.Queue.claim(lane, token, ttr, count, steal)
	l.same("claim", l.scripts.claim(lane, token, ttr, count, steal), want)
	return want
}

func (l *lockstep) settle(jobs ...settling) []int {
	want := l.Queue.settle(jobs...)
	l.same("settle "+jobs[0].verb, l.scripts.settle(jobs...), want)
	return want
}

func (l *lockstep) revert(lane, token string) int {
	want := l.Queue.revert(lane, token)
	l.same("revert", l.scripts.revert(lane, token), want)
	return want
}

func (l *lockstep) respawn(remove bool, skip, count int) (done, kept, left int) {
	done, kept, left = l.Queue.respawn(remove, skip, count)
	a, b, c := l.scripts.respawn(remove, skip, count)
	l.same("respawn", []int{a, b, c}, []int{done, kept, left})
	return done, kept, left
}

func (l *lockstep) purge(all bool, count int) (looked, removed int) {
	looked, removed = l.Queue.purge(all, count)
	a, b := l.scripts.purge(all, count)
	l.same("purge", []int{a, b}, []int{looked, removed})
	return looked, removed
}

func (l *lockstep) look() []int {
	want := l.Queue.look()
	l.same("look", l.scripts.look(), want)
	return want
}

func (l *lockstep) peek() string {
	want := l.Queue.peek()
	l.same("peek", l.scripts.peek(), want)
	return want
}

func (l *lockstep) get(seq int64) string {
	want := l.Queue.get(seq)
	l.same("get", l.scripts.get(seq), want)
	return want
}

func (l *lockstep) deadPage(skip, count int) (total int, letters []string) {
	total, letters = l.Queue.deadPage(skip, count)
	n, got := l.scripts.deadPage(skip, count)
	l.same("dead_page", []any{n, got}, []any{total, letters})
	return total, letters
}

func (l *lockstep) phpMigrate(set string, clock int64) {
	l.Queue.phpMigrate(set, clock)
	l.scripts.phpMigrate(set, clock)
}

func (l *lockstep) phpPop() (string, bool) {
	p, ok := l.Queue.phpPop()
	got, _ := l.scripts.phpPop()
	l.same("PHP's pop", got, p)
	return p, ok
}

func (l *lockstep) phpAdd(set, member string, at int64) bool {
	l.scripts.phpAdd(set, member, at)
	return l.Queue.phpAdd(set, member, at)
}

func (l *lockstep) phpRemove(member string) bool {
	l.scripts.phpRemove(member)
	return l.Queue.phpRemove(member)
}

func (l *lockstep) phpPush(p string) { l.Queue.phpPush(p); l.scripts.phpPush(p) }

// walkInLockstep takes one walk on an empty database, and says how many calls it compared.
func walkInLockstep(c *redis.Client, texts map[string]*redis.Script, seed int64) (calls int, err error) {
	c.FlushDB(ctx)
	q := newQueue(flavorOf(seed), "")
	l := &lockstep{Queue: q, scripts: &scripts{c, texts, q.flavor, map[string]bool{}}}
	l.setNow(begin)
	err = newWorld(seed, l, q, "").walk(200)
	return l.calls, err
}

// Redis decides what is right; miniredis must give the same replies and keys.
func TestScriptsFollowTheModel(t *testing.T) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		followTheModel(t, redistest.Start(t).Addr, length(*lockstepWalks, 4))
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		followTheModel(t, miniredis.RunT(t).Addr(), length(*miniWalks, 3))
	})
}

func followTheModel(t *testing.T, addr string, count int64) {
	texts := testTexts(t, nil)
	var next, calls atomic.Int64
	next.Store(*firstLockstep)
	var workers sync.WaitGroup
	for db := range 3 {
		c := redis.NewClient(&redis.Options{Addr: addr, DB: db, DisableIdentity: true})
		t.Cleanup(func() { _ = c.Close() })
		workers.Go(func() {
			for !t.Failed() {
				seed := next.Add(1) - 1
				if seed >= *firstLockstep+count {
					return
				}
				n, err := walkInLockstep(c, texts, seed)
				calls.Add(int64(n))
				if err != nil {
					t.Errorf("walk %d of %s: %v", seed, flavorOf(seed).name, err)
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d walks, %d calls compared", count, calls.Load())
}
