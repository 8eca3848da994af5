// Package jobmodel is the rules of lua/job once more, in Go, and a world around
// them: lanes, clients, operators, time and faults. All of it is tests: nothing
// else needs it.
//
// A Shard is the model of one shard, on plain maps and slices. A World takes
// random steps on it and holds each against what it knows of every job from
// outside. The same walk runs on the model alone, where 100,000 take some minutes,
// and beside the Lua scripts (see lua/job), where every reply, every wake and every
// key must be equal. How polls wait for wakes is ingest/jobs, which walks by itself.
package jobmodel

import (
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
)

// Store is what a World calls for one shard: the model alone, or the scripts with
// the model beside them.
type Store interface {
	Publish(quota Quota, groups []Publish) []Stored
	Limit(queue string, most int)
	Keep(queue string, keep Keep)
	Claim(lane, token string, maxBytes int, claims []Claim, reportLeft map[string]bool) ClaimReply
	Ack(groups []AckGroup) []int
	Settle(jobs []Settle) []State
	Revert(lane, token string, queues []string) int
	Due() []Due
	Promote(due []Due) Promoted
	Respawn(queue, verb string, d DeadSelection, ttl int64) (count int, found string)
	Purge(queue string, all bool, limit int) (looked, deleted int)
	Expire(queue string) Swept
	Peek(queue string) *Claimed
	Dead(queue string, limit int) []Claimed
	Get(ref Ref) (*Claimed, State)
	GetKept(ref Ref) Kept
	DropKept(queue string, all bool) int
	Counts(queue string) Counts
	Pause(queue, by string)
	Resume(queue string)
	List(queue string, state State, limit int, at, last string) Page
	Account() []int64
	SetNow(us int64)
	Vanish(ref Ref)
	Unlist(ref Ref)
}

// Start is the clock's time when a world begins, µs.
const Start = 1_763_600_000_000_000

// Keeps says which queues of a world keep their dead jobs: those named r… do not,
// as reply queues or those of a namespace with `dead: drop`.
func Keeps(queue string) bool { return !strings.HasPrefix(queue, "r") }

// Queues are all names that a world may use.
var Queues = []string{"a", "b", "r", "r2"}

// World is one random walk.
type World struct {
	Count map[string]int                   // how often something happened
	Trace func(format string, args ...any) // may be nil

	rand    *rand.Rand
	bug     string
	now     int64 // µs
	store   Store
	model   *Shard
	quota   Quota
	queues  []string
	limits  map[string]int  // of queues that have one
	keeping map[string]Keep // of queues that keep acked jobs
	asleep  map[string]bool // queues that had no job for the last claim that asked, nor a wake since
	lanes   []*lane
	tasks   []func() bool // what clients and operators are about to do; each step says whether it was the last
	steps   int
	names   int // of lanes and keys so far

	busy       bool // as Setting.Busy
	shortLives bool // of some jobs, so that they expire behind others
	foreign    string
	quiet      bool // no faults, so that what is under way comes to an end

	// What is known of the shard from outside.
	jobs            map[Ref]*truth
	newest          map[string]int64 // by queue: the sequence of the last first delivery
	keys            map[string]int64 // queue/key → first sequence
	uniques         map[string]Unique
	maxSeq          int64
	known, unknown  int64 // jobs published, by the answers
	vanished        int64 // jobs that foreign changes removed
	unlisted, found int64 // jobs that foreign changes took out of their state, and that were found again
}

// truth is what the world knows of a job from outside.
type truth struct {
	ref           Ref
	due, ends     int64 // ms
	tries, claims int   // claims are those that count
	given         int   // tries by the record: foreign changes may add to tries
	callerID      string
	holder        string // the call of claim that handed it out last
	respawns      int
	handed        map[string]int // by call of claim: the respawns before it
	until         int64          // ms: the deadline of that lease
	acked, buried bool
	errors        []string // the newest first
	progress      string   // the last word
	died          Reason   // of its last death
	delivered     bool
	reordered     bool // it did not enter the list when it was born
	gone          bool
	vanished      bool
	unlisted      bool
}

var errBroken = errors.New("broken promise")

// Setting narrows what NewWorld draws. Its zero value is everything, without a bug.
type Setting struct {
	Bug  string // one of Bugs
	Busy bool   // operators and faults are at work all the time
}

// NewWorld draws a world around a shard and its model.
func NewWorld(seed int64, setting Setting, store Store, model *Shard) *World {
	w := &World{
		Count: map[string]int{}, rand: rand.New(rand.NewSource(seed)), bug: setting.Bug, busy: setting.Busy, now: Start, store: store, model: model,
		limits: map[string]int{}, keeping: map[string]Keep{}, asleep: map[string]bool{},
		jobs: map[Ref]*truth{}, newest: map[string]int64{}, keys: map[string]int64{}, uniques: map[string]Unique{},
	}
	w.queues = [][]string{{"a"}, {"a", "b"}, {"a", "b", "r"}, {"a", "r"}, {"r", "r2"}}[w.rand.Intn(5)]
	w.quota = Quota{Jobs: int64(3 + w.rand.Intn(30)), Queues: int64(1 + w.rand.Intn(3))}
	w.quota.Keys = 1 + w.quota.Jobs/3
	w.shortLives = w.rand.Intn(3) > 0
	odds := 8
	if w.busy {
		odds = 4
	}
	w.foreign = []string{"", "", "vanish", "unlist", "", "", "", ""}[w.rand.Intn(odds)]
	for _, q := range w.queues {
		if w.rand.Intn(3) == 0 {
			w.limit(q, 1+w.rand.Intn(3))
		}
		if w.rand.Intn(3) > 0 {
			w.keeping[q] = Keep{int64(1 + w.rand.Intn(20_000)), int64(2 + w.rand.Intn(8))}
			store.Keep(q, w.keeping[q])
		}
	}
	for range 1 + w.rand.Intn(3) {
		w.lanes = append(w.lanes, w.newLane())
	}
	return w
}

// Walk takes n random steps, then lets everything come to its end. It returns the
// first promise that was broken.
func (w *World) Walk(n int) (err error) {
	defer func() {
		if v := recover(); v != nil {
			e, ok := v.(error)
			if !ok || !errors.Is(e, errBroken) {
				panic(v)
			}
			err = e
		}
	}()
	for w.steps = range n {
		w.step()
	}
	w.end()
	return nil
}

func (w *World) step() {
	if w.busy && w.rand.Intn(5) == 0 {
		w.operate()
		return
	}
	switch x := w.rand.Intn(100); {
	case x < 14:
		w.spawnPublish()
	case x < 34:
		w.claim()
	case x < 40:
		if w.rand.Intn(2) == 0 || !w.advanceTo() {
			w.advance(int64(w.rand.Intn(3000)))
		}
	case x < 44:
		w.spawnPromote()
	case x < 46:
		w.operate()
	case x < 49:
		w.fault()
	default:
		w.runTask()
	}
}

// Broken is the error of a broken promise, for Stores that compare.
func Broken(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errBroken}, args...)...)
}

func (w *World) bad(format string, args ...any) {
	panic(Broken("step %d: "+format, append([]any{w.steps}, args...)...))
}

func (w *World) trace(format string, args ...any) {
	if w.Trace != nil {
		w.Trace("%4d "+format, append([]any{w.steps}, args...)...)
	}
}

// once says true one time in n, and never while the world is quiet.
func (w *World) once(n int) bool { return w.rand.Intn(n) == 0 && !w.quiet }

func (w *World) pick(names []string) string { return names[w.rand.Intn(len(names))] }
func (w *World) ms() int64                  { return w.now / 1000 }

func (w *World) advance(ms int64) { w.setNow(w.now + ms*1000 + int64(w.rand.Intn(1000))) }

// advanceTo sets the clock to the ms in which something is due, or to the one before
// it. It says whether there was anything to come.
func (w *World) advanceTo() bool {
	comes := func(ms int64) bool { return ms > w.ms() }
	t := w.some(func(t *truth) bool {
		return !t.gone && (comes(t.ends) || comes(t.due) || comes(int64(w.model.Lease[t.ref])))
	})
	if t == nil {
		return false
	}
	times := slices.DeleteFunc([]int64{t.ends, t.due, int64(w.model.Lease[t.ref])}, func(ms int64) bool { return !comes(ms) })
	w.setNow((times[w.rand.Intn(len(times))]-int64(w.rand.Intn(2)))*1000 + int64(w.rand.Intn(1000)))
	return true
}

func (w *World) setNow(us int64) {
	w.now = us
	w.store.SetNow(us)
	maps.DeleteFunc(w.uniques, func(_ string, u Unique) bool { return u.Until <= us/1000 })
}

func (w *World) runTask() {
	if len(w.tasks) == 0 {
		return
	}
	i := w.rand.Intn(len(w.tasks))
	if w.tasks[i]() {
		w.tasks = slices.Delete(w.tasks, i, i+1)
	}
}

func (w *World) spawn(task func() bool) { w.tasks = append(w.tasks, task) }

// some is one of the jobs that want is true for, or nil.
func (w *World) some(want func(*truth) bool) *truth {
	var all []*truth
	for _, t := range w.jobs {
		if want(t) {
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *truth) int { return int(a.ref.Seq - b.ref.Seq) })
	return all[w.rand.Intn(len(all))]
}

// end lets time pass until nothing is left, and closes the account.
func (w *World) end() {
	for _, q := range w.queues {
		if w.limits[q] > 0 {
			w.limit(q, 100)
		}
		w.store.Resume(q)
		w.ran("resume", nil)
	}
	w.quiet = true
	for n := 0; len(w.tasks) > 0; n++ {
		if n == 10_000 {
			w.bad("something never comes to its end")
		}
		w.runTask()
	}
	w.sweep(true)
	for i := range 60 {
		w.advance(30000)
		if w.model.empty() {
			continue
		}
		if due := w.store.Due(); len(due) > 0 {
			w.promote(due)
		}
		for _, q := range w.queues {
			w.claimRest(q, fmt.Sprint("end", i, q))
		}
	}
	w.checkEnd()
}

// claimRest claims and acks what is ready, and deletes what is dead.
func (w *World) claimRest(queue, token string) {
	r := w.store.Claim("end", token, 1<<20, []Claim{{1000, 50, []string{queue}}}, nil)
	for _, c := range r.Jobs[0] {
		w.jobs[c.ref()].claims++
	}
	w.ran("claim", func(t *truth) bool { return t.expired(r.Now) })
	for _, c := range r.Jobs[0] {
		w.ack([]AckGroup{{queue, []AckRef{{c.Job.Seq, c.Job.CallerID}}}})
	}
	w.store.Respawn(queue, "delete", DeadSelection{Limit: 100}, 0)
	w.ran("delete dead", func(t *truth) bool { return t.claims > 0 })
}

func (t *truth) expired(now int64) bool { return t.ends > 0 && t.ends <= now }

// used says that a job of a queue that keeps no dead ends when its tries do.
func (t *truth) used() bool { return !Keeps(t.ref.Queue) && (t.claims >= t.tries || t.buried) }
