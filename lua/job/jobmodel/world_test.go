// Package jobmodel is the rules of lua/job once more, in Go, and a world around
// them: processes with lanes and long polls, clients, operators, time and faults.
// All of it is tests: nothing else needs it.
//
// A Shard is the model of one shard, on plain maps and slices. A World takes
// random steps on one or more shards and holds each against what it knows of
// every job from outside. The same walk runs on the model alone, where 100,000
// take some minutes, and beside the Lua scripts (see lua/job), where every reply
// and every key must be equal.
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

	rand      *rand.Rand
	bug       string
	now       int64 // µs
	shards    []*shard
	queues    []string
	places    map[string][]int // queue → its shards
	limits    map[string]int   // of queues that have one
	keeping   map[string]Keep  // of queues that keep acked jobs
	extra     *rand.Rand       // of what came later, so that the walks from before stay as they were
	processes []*process
	tasks     []func() bool // what clients and operators are about to do; each step says whether it was the last
	steps     int
	names     int // of processes and keys so far

	waiting    bool // as Setting.Waiting
	busy       bool // as Setting.Busy
	shortLives bool // of some jobs, so that they expire behind others
	oneShard   bool // a poll that is woken for a place asks only its shard
	foreign    string
	quiet      bool // no faults, so that what is under way comes to an end
}

// shard is one shard and what the world knows of it from outside.
type shard struct {
	n     int
	store Store
	model *Shard
	quota Quota

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
	poll          *poll
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
	Bug     string // one of Bugs
	Waiting bool   // little else than polls that wait, and jobs for them
	Busy    bool   // operators and faults are at work all the time
}

// NewWorld draws a world. open makes its shards.
func NewWorld(seed int64, setting Setting, open func(shard int) (Store, *Shard)) *World {
	w := &World{rand: rand.New(rand.NewSource(seed)), bug: setting.Bug, now: Start, Count: map[string]int{}, places: map[string][]int{}, limits: map[string]int{}, keeping: map[string]Keep{}, extra: rand.New(rand.NewSource(seed + 1<<40))}
	w.queues = [][]string{{"a"}, {"a", "b"}, {"a", "b", "r"}, {"a", "r"}, {"r", "r2"}}[w.rand.Intn(5)]
	quota := Quota{Jobs: int64(3 + w.rand.Intn(30)), Queues: int64(1 + w.rand.Intn(3))}
	quota.Keys = 1 + quota.Jobs/3
	for n := range 1 + w.rand.Intn(3) {
		store, model := open(n)
		w.shards = append(w.shards, &shard{
			n: n, store: store, model: model, quota: quota,
			jobs: map[Ref]*truth{}, newest: map[string]int64{}, keys: map[string]int64{}, uniques: map[string]Unique{},
		})
	}
	for _, q := range w.queues { // the spread of each queue
		first := w.rand.Intn(len(w.shards))
		for i := range 1 + w.rand.Intn(len(w.shards)) {
			w.places[q] = append(w.places[q], (first+i)%len(w.shards))
		}
	}
	w.waiting = (w.rand.Intn(4) == 0 || setting.Waiting) && !setting.Busy
	w.busy = setting.Busy
	w.shortLives = w.rand.Intn(3) > 0
	w.oneShard = w.rand.Intn(3) == 0
	odds := 8
	if w.busy {
		odds = 4
	}
	w.foreign = []string{"", "", "vanish", "unlist", "", "", "", ""}[w.rand.Intn(odds)]
	for _, q := range w.queues {
		if w.rand.Intn(5) < 2 && len(w.places[q]) == 1 {
			w.limit(q, 1+w.rand.Intn(3))
		}
	}
	for _, q := range w.queues {
		if w.extra.Intn(3) == 0 {
			continue
		}
		w.keeping[q] = Keep{int64(1 + w.extra.Intn(20_000)), int64(2 + w.extra.Intn(8))}
		for _, s := range w.shards {
			s.store.Keep(q, w.keeping[q])
		}
	}
	for range 1 + w.rand.Intn(3) {
		w.processes = append(w.processes, w.newProcess())
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
		if w.rand.Intn(40) == 0 {
			w.settleDown()
		}
	}
	w.end()
	return nil
}

func (w *World) step() {
	if w.waiting && w.rand.Intn(10) > 0 {
		switch w.rand.Intn(7) {
		case 0:
			w.spawnPublish()
		case 1:
			w.spawnPoll()
		case 2:
			w.runTask()
		default:
			w.runProcess()
		}
		return
	}
	if w.busy && w.rand.Intn(5) == 0 {
		w.operate()
		return
	}
	switch x := w.rand.Intn(100); {
	case x < 14:
		w.spawnPublish()
	case x < 30:
		w.spawnPoll()
	case x < 60:
		w.runTask()
	case x < 72:
		w.runProcess()
	case x < 78:
		if w.rand.Intn(2) == 0 || !w.advanceTo(w.someShard()) {
			w.advance(int64(w.rand.Intn(3000)))
		}
	case x < 82:
		w.spawnPromote()
	case x < 84:
		w.operate()
	case x < 87:
		w.fault()
	case x < 90:
		w.clientGoes()
	case x < 92:
		w.pollEnds()
	default:
		w.runTask()
		w.runProcess()
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

func (w *World) someShard() *shard { return w.shards[w.rand.Intn(len(w.shards))] }

func (w *World) shardOf(queue string) *shard {
	places := w.places[queue]
	return w.shards[places[w.rand.Intn(len(places))]]
}

func (w *World) advance(ms int64) { w.setNow(w.now + ms*1000 + int64(w.rand.Intn(1000))) }

// advanceTo sets the clock to the ms in which something is due, or to the one before
// it. It says whether there was anything to come.
func (w *World) advanceTo(s *shard) bool {
	comes := func(ms int64) bool { return ms > w.ms() }
	t := w.some(s, func(t *truth) bool {
		return !t.gone && (comes(t.ends) || comes(t.due) || comes(int64(s.model.Lease[t.ref])))
	})
	if t == nil {
		return false
	}
	times := slices.DeleteFunc([]int64{t.ends, t.due, int64(s.model.Lease[t.ref])}, func(ms int64) bool { return !comes(ms) })
	w.setNow((times[w.rand.Intn(len(times))]-int64(w.rand.Intn(2)))*1000 + int64(w.rand.Intn(1000)))
	return true
}

func (w *World) setNow(us int64) {
	w.now = us
	for _, s := range w.shards {
		s.store.SetNow(us)
		maps.DeleteFunc(s.uniques, func(_ string, u Unique) bool { return u.Until <= us/1000 })
	}
}

func (w *World) runTask() bool {
	if len(w.tasks) == 0 {
		return false
	}
	i := w.rand.Intn(len(w.tasks))
	if w.tasks[i]() {
		w.tasks = slices.Delete(w.tasks, i, i+1)
	}
	return true
}

func (w *World) spawn(task func() bool) { w.tasks = append(w.tasks, task) }

// some is one of the shard's jobs that want is true for, or nil.
func (w *World) some(s *shard, want func(*truth) bool) *truth {
	var all []*truth
	for _, t := range s.jobs {
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

// settleDown lets everything under way come to its end without faults, and then
// wants nobody to wait beside a ready job.
func (w *World) settleDown() {
	w.quiet = true
	defer func() { w.quiet = false }()
	for range 4000 {
		busy := len(w.tasks) > 0
		for len(w.tasks) > 0 && w.rand.Intn(3) > 0 {
			w.runTask()
		}
		for _, p := range w.processes {
			busy = w.stepProcess(p) || busy
		}
		if !busy {
			w.Count["settled down"]++
			w.checkWaiting()
			return
		}
	}
	w.bad("something never comes to its end")
}

// end lets time pass until nothing is left, and closes the account.
func (w *World) end() {
	for _, q := range slices.Sorted(maps.Keys(w.limits)) {
		w.limit(q, 100)
	}
	for _, s := range w.shards {
		for _, queue := range w.queues {
			s.store.Resume(queue)
			w.ran(s, "resume", nil)
		}
	}
	w.settleDown()
	for _, s := range w.shards {
		w.sweep(s, true)
	}
	for i := range 60 {
		w.advance(30000)
		for _, s := range w.shards {
			if s.model.empty() {
				continue
			}
			if due := s.store.Due(); len(due) > 0 {
				w.promote(s, due)
			}
			for _, q := range w.queues {
				w.claimRest(s, q, fmt.Sprint("end", i, q))
			}
		}
	}
	for _, s := range w.shards {
		w.checkEnd(s)
	}
}

// claimRest claims and acks what is ready, and deletes what is dead.
func (w *World) claimRest(s *shard, queue, token string) {
	r := s.store.Claim("end", token, 1<<20, []Claim{{1000, 50, []string{queue}}}, nil)
	for _, c := range r.Jobs[0] {
		s.jobs[c.ref()].claims++
	}
	w.ran(s, "claim", func(t *truth) bool { return t.expired(r.Now) })
	for _, c := range r.Jobs[0] {
		w.ack(s, []AckGroup{{queue, []AckRef{{c.Job.Seq, c.Job.CallerID}}}})
	}
	s.store.Respawn(queue, "delete", DeadSelection{Limit: 100}, 0)
	w.ran(s, "delete dead", func(t *truth) bool { return t.claims > 0 })
}

func (t *truth) expired(now int64) bool { return t.ends > 0 && t.ends <= now }

// used says that a job of a queue that keeps no dead ends when its tries do.
func (t *truth) used() bool { return !Keeps(t.ref.Queue) && (t.claims >= t.tries || t.buried) }

// Summary is the counts of a walk, for people.
func Summary(count map[string]int) string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(&b, "%s %d, ", what, count[what])
	}
	return strings.TrimSuffix(b.String(), ", ")
}
