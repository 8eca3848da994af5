package job

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/metric"
)

const (
	// totalEvery is how often the promoter counts the schedules of a shard, in ms: five commands
	// that read no list, in a pipeline that it sends anyway.
	totalEvery = 5000
	// overdueAfter is how late, in ms, a schedule is overdue: whoever fires looks every second.
	overdueAfter = 10_000
)

// What becomes of a tick.
const (
	fired = iota
	missed
	overlapped
	paused
	unregistered
	superseded
	tickOutcomes
)

var tickNames = [tickOutcomes]string{"fired", "missed", "overlapped", "paused", "unregistered", "superseded"}

// scheduleTotals are those of a shard: how many schedules it has, as they were counted last, and
// what this process made of their ticks.
type scheduleTotals struct {
	again                atomic.Int64 // when they are counted again, ms since the Store was opened; 0: not yet
	all, active, overdue atomic.Int64
	owners, gone         atomic.Int64
	outbox, outboxSince  atomic.Int64 // follow-ups that wait, and since when the first one does, ms
	ticks                [tickOutcomes]atomic.Int64
}

// ScheduleTotals are those of a namespace.
type ScheduleTotals struct {
	Known   bool  `json:"-"`       // whether schedules were counted, of the store
	Active  int64 `json:"active"`  // schedules
	Stopped int64 `json:"stopped"` // that are paused, or have ended
	Overdue int64 `json:"overdue"` // active ones that should have fired 10 s ago
	Owners  int64 `json:"owners"`  // that are registered
	Gone    int64 `json:"gone"`    // owners whose registration ran out
	// Ticks are those that this process accounted for, by outcome: a process fires a part of a
	// store's.
	Ticks map[string]int64 `json:"ticks"`
}

// ScheduleTotals returns what is known, and reads nothing.
func (n *Namespace) ScheduleTotals() ScheduleTotals {
	t := ScheduleTotals{Known: true, Ticks: make(map[string]int64, tickOutcomes)}
	for _, sh := range n.all() {
		s := &sh.schedules
		t.Known = t.Known && s.again.Load() > 0
		active := s.active.Load()
		t.Active += active
		t.Stopped += max(0, s.all.Load()-active)
		t.Overdue += s.overdue.Load()
		t.Owners, t.Gone = max(t.Owners, s.owners.Load()), max(t.Gone, s.gone.Load()) // each is in all shards
		for i, name := range tickNames {
			t.Ticks[name] += s.ticks[i].Load()
		}
	}
	return t
}

// Outbox returns how many follow-ups of the namespace wait, and since when the first of them
// does, Unix ms; 0: none does. It reads nothing.
func (n *Namespace) Outbox() (jobs, since int64) {
	for _, sh := range n.all() {
		t := &sh.schedules
		jobs += t.outbox.Load()
		if at := t.outboxSince.Load(); at > 0 && (since == 0 || at < since) {
			since = at
		}
	}
	return jobs, since
}

// ask adds the commands of a count to a pipeline, if it is time, and returns what reads the
// answers.
func (t *scheduleTotals) ask(ctx context.Context, pipe redis.Pipeliner, sh *shard,
	age, now int64) func() {
	if age < t.again.Load() {
		return func() {}
	}
	all, active := pipe.HLen(ctx, sh.states), pipe.ZCard(ctx, sh.due)
	overdue := pipe.ZCount(ctx, sh.due, "-inf", strconv.FormatInt(now-overdueAfter, 10))
	clock := strconv.FormatInt(now, 10)
	owners, gone := pipe.ZCount(ctx, sh.owners, clock, "+inf"), pipe.ZCount(ctx, sh.owners, "1", "("+clock)
	return func() {
		if owners.Err() == nil && gone.Err() == nil {
			t.owners.Store(owners.Val())
			t.gone.Store(gone.Val())
		}
		if all.Err() != nil || active.Err() != nil || overdue.Err() != nil {
			return
		}
		t.all.Store(all.Val())
		t.active.Store(active.Val())
		t.overdue.Store(overdue.Val())
		t.again.Store(age + totalEvery)
	}
}

// account counts what fire made of the ticks of a firing, by the rules of the script: those
// that fired are its first runs.
func (t *scheduleTotals) account(f *Firing) {
	if f.Status != Fired && f.Status != NoRoom && f.Status != Unregistered {
		return
	}
	t.ticks[fired].Add(int64(f.Fired))
	t.ticks[missed].Add(int64(f.Missed))
	t.ticks[paused].Add(int64(f.Paused))
	if f.Status == Unregistered {
		t.ticks[unregistered].Add(int64(len(f.List)))
		return
	}
	ended, waits := f.Left == int64(f.Fired), f.Held
	for _, run := range f.List[f.Fired:] {
		switch {
		case run.Cause == 'w':
			waits = true
		case ended, f.Status == NoRoom: // no tick any more; or it stays the next one
		case f.Overlap == "buffer" && !waits:
			waits = true
		default:
			t.ticks[overlapped].Add(1)
		}
	}
	if ended && waits {
		t.ticks[superseded].Add(1)
	}
}

// leave counts the ticks that a put gave up.
func (t *scheduleTotals) leave(p *PutSchedule) {
	given := int64(p.GivenUp)
	if p.Paused {
		t.ticks[paused].Add(given)
		given = 0
	}
	if p.Waits {
		given++
	}
	t.ticks[superseded].Add(given)
}

var (
	accountSchedules = metric.GaugeOf("spillway_account_schedules",
		"Schedules stored now, by state: active, or stopped, which is paused or ended; counted every 5 s, less often by a third process and more. "+
			"The store's figure: the same in every process.", "namespace", "state")
	overdueSchedules = metric.GaugeOf("spillway_schedules_overdue",
		"Active schedules that should have fired 10 s ago, with their jitter, and did not; counted every 5 s, less often by a third process and more. "+
			"The store's figure: the same in every process.", "namespace")
	scheduleOwners = metric.GaugeOf("spillway_schedules_owners",
		"Owners of schedules by state: registered, or gone: without a heartbeat for its ttl, so that its schedules do not fire; "+
			"counted every 5 s, less often by a third process and more. The store's figure: the same in every process.", "namespace", "state")
	accountTicks = metric.CounterOf("spillway_account_ticks_total",
		"Ticks of schedules by outcome, as this process accounted for them since it started: the sum over all "+
			"processes is the store's.", "namespace", "outcome")
)

// scheduleMetrics are the totals of a store. They read nothing.
func scheduleMetrics(s *Store) metric.Figures {
	all := []metric.Figure{accountSchedules, overdueSchedules, scheduleOwners, accountTicks}
	return metric.Figures{All: all, Read: func(send metric.Send) {
		for _, ns := range s.Namespaces() {
			t := ns.ScheduleTotals()
			if t.Known {
				send(accountSchedules, float64(t.Active), ns.Name, "active")
				send(accountSchedules, float64(t.Stopped), ns.Name, "stopped")
				send(overdueSchedules, float64(t.Overdue), ns.Name)
				send(scheduleOwners, float64(t.Owners), ns.Name, "registered")
				send(scheduleOwners, float64(t.Gone), ns.Name, "gone")
			}
			for name, n := range t.Ticks {
				send(accountTicks, float64(n), ns.Name, name)
			}
		}
	}}
}
