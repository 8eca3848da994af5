package push

import (
	"math"
	"slices"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition/adaptive"
)

// A queue whose Writes fail slows down: from slowAfter failures in a row, twice its
// Writes at least, one job at a time is written, slowPause apart at first and
// guard.MaxProbePause in the end. A handler that is broken for one queue must not use up the
// tries of all its jobs while the sink answers for others.
const (
	slowAfter  = 8
	slowPause  = 100 * time.Millisecond
	slowGrowth = 1.5
)

// aloneFor is how long jobs of a queue are written one by one after a rejected Write could
// not be bisected to its end.
const aloneFor = time.Minute

// A queue is what a target knows of one queue. The target's lock guards it.
type queue struct {
	name    string
	rule    *Rule
	limit   *adaptive.Limit // of its Writes
	sources []*source

	running  int       // Writes, those that are claimed for included
	hold     time.Time // no claim before
	wait     wait      // for the hold
	failures int       // Writes in a row that failed
	alone    time.Time // jobs are written one by one until then
	listed   time.Time // when it last was known to have jobs
}

func newQueue(name string, r *Rule) *queue {
	least := r.MinWrites
	if least == 0 {
		least = r.Writes
	}
	return &queue{name: name, rule: r, limit: adaptive.New(least, least, r.Writes, r.Target)}
}

// A source is a queue on one shard.
type source struct {
	queue      *queue
	shard      int
	subscribed bool // its wakes are heard
	due        bool // it may have ready jobs
	inRing     bool
	rate       wait // until the queue's rate lets a job pass
}

// lastTurn lets the other shards have the next slot first.
func (q *queue) lastTurn(src *source) {
	i := slices.Index(q.sources, src)
	if i < 0 {
		return
	}
	q.sources = append(slices.Delete(q.sources, i, i+1), src)
}

// concurrency is how many Writes may run at present.
func (q *queue) concurrency() int {
	if q.slow() {
		return 1
	}
	return q.limit.Get()
}

func (q *queue) slow() bool { return q.failures >= q.slowAfter() }

func (q *queue) slowAfter() int { return max(slowAfter, 2*q.limit.Get()) }

// batch is how many jobs a Write has at present.
func (q *queue) batch(now time.Time) int {
	if q.slow() || now.Before(q.alone) {
		return 1
	}
	return q.rule.Batch
}

// wrote learns how a Write ended. wait is how long the sink wants to be left alone. A queue
// whose target was not reached is slow at once: its jobs are ready again.
func (q *queue) wrote(now time.Time, failed, unsent bool, wait time.Duration) {
	if !failed {
		q.failures = 0
		return
	}
	slow, longest := q.slowAfter(), q.rule.BackoffMax
	if q.failures++; unsent {
		q.failures, longest = max(q.failures, slow), max(longest, guard.MaxProbePause)
	}
	if q.slow() {
		over := min(q.failures-slow, 16)
		wait = max(wait, min(guard.MaxProbePause,
			time.Duration(float64(slowPause)*math.Pow(slowGrowth, float64(over)))))
	}
	if until := now.Add(min(wait, longest)); until.After(q.hold) {
		q.hold = until
	}
}
