package admin

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/drops"
	"github.com/spillway-io/spillway/partition/history"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/metric"
)

const (
	// jobReadTime bounds what one round of ledgers of a pool takes.
	jobReadTime = 2 * time.Second
	// agesEvery is how often the queues of each namespace are counted for their ages, while
	// nobody asks.
	agesEvery = 10 * time.Second
	// lookedFor is how long a queue is one that somebody looked at.
	lookedFor = 15 * time.Minute
)

// jobLedgers reads the ledgers of the namespaces of kind queue every second, and counts their
// queues now and then. Metrics, overview and log take both from it, so a scrape or a watcher
// costs the store nothing. It belongs to the Server, and outlives a reload.
type jobLedgers struct {
	source Source
	log    *zap.Logger
	counts *backend.Pace // of reads that go through many queues or jobs
	audits *backend.Pace
	names  *backend.Pace // of reads of all names
	single *backend.Pace // of counts of one queue, which need not wait for those of many

	lastNames atomic.Pointer[queueNames]

	mu      sync.Mutex
	watched watched
	spaces  map[string]*jobFigures
	tables  map[tableKey]*queueTable
	drops   *drops.Notices
	history *history.History
}

// jobFigures are what is known of a namespace of kind queue.
type jobFigures struct {
	changed   time.Time    // when the ledger was another last
	recent    []jobReading // at most rateSpan+1, the latest last
	queues    int          // -1: not known
	oldest    int64        // Unix ms when the first ready job was published; 0: none, or not known
	oldestAge int64        // ms, as it was when it was read
	counted   *queueTable  // the last one of all queues; nil: none yet
	tracked   map[string]*trackedQueue
	dying     string    // the queue whose dead letters rose most when they last did
	dyingAt   time.Time // when they were counted
	paused    []job.PausedQueue
}

type jobReading struct {
	job.Ledger
	at time.Time
}

func newJobLedgers(source Source, log *zap.Logger) *jobLedgers {
	return &jobLedgers{
		source:  source,
		log:     log,
		counts:  backend.NewPace(),
		audits:  backend.NewPace(),
		names:   backend.NewPace(),
		single:  backend.NewPace(),
		spaces:  map[string]*jobFigures{},
		tables:  map[tableKey]*queueTable{},
		history: history.NewQueues(),
		drops: drops.NewNotices(log, "jobs", map[string]string{
			"expired": "jobs expire: nobody acked them within their ttl",
			"died":    "jobs become dead letters: their tries are used up, or a worker buried them",
			"lost":    "jobs are lost: something other than Spillway removes them from Redis",
		}),
	}
}

// run reads until ctx ends.
func (b *jobLedgers) run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { repeat(ctx, accountsEvery, b.readLedgers) })
	loops.Go(func() { repeat(ctx, agesEvery, b.readAges) })
	loops.Wait()
}

// repeat calls f until ctx ends, after a pause that leaves the store most of its time: f
// returns how long it was busy. A call that timed out is none of its work.
func repeat(ctx context.Context, every time.Duration,
	f func(context.Context) (busy time.Duration)) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
			wait.Reset(max(every, accountsShare*f(ctx)))
		}
	}
}

// readLedgers reads every ledger once, those of each pool beside those of the others. Where a
// pool does not answer, the last ones stay.
func (b *jobLedgers) readLedgers(ctx context.Context) (busy time.Duration) {
	v := b.source()
	b.forget(v)
	ctx, cancel := context.WithTimeout(ctx, jobReadTime)
	defer cancel()
	var pools sync.WaitGroup
	began, took := time.Now(), make([]time.Duration, len(v.Jobs)) // until the last answer of each pool
	for i, store := range v.Jobs {
		pools.Go(func() {
			for _, ns := range store.Namespaces() {
				if b.rests(ns) {
					continue
				}
				l, err := store.Ledger(ctx, ns)
				if err != nil {
					return // the others of the pool would wait, too
				}
				took[i] = time.Since(began)
				b.note(ns.Name, jobReading{l, time.Now()})
			}
		})
	}
	pools.Wait()
	return slices.Max(append(took, 0))
}

// rests is reading.rests for a namespace of kind queue.
func (b *jobLedgers) rests(ns *job.Namespace) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, now := b.spaces[ns.Name], time.Now()
	if f == nil || len(f.recent) == 0 || b.watched.now(now) {
		return false
	}
	return f.last().rests(now, ns.Rest())
}

// last is when the ledger was read.
func (f *jobFigures) last() reading {
	r := reading{changed: f.changed}
	if n := len(f.recent); n > 0 {
		r.at = f.recent[n-1].at
	}
	return r
}

func (b *jobLedgers) note(namespace string, now jobReading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.spaces[namespace]
	if f == nil {
		return // it was deleted meanwhile
	}
	if n := len(f.recent); n == 0 || f.recent[n-1].Ledger != now.Ledger {
		f.changed = now.at
	}
	if n := len(f.recent); n > 0 {
		before := f.recent[n-1]
		b.drops.Note(namespace, jobOutcomes(before.Ledger), jobOutcomes(now.Ledger), now.at)
		if now.Published < before.Published { // the account of another store
			f.recent = nil
		}
	}
	f.recent = latest(append(f.recent, now), rateSpan+1)
}

// latest keeps the last n readings.
func latest(readings []jobReading, n int) []jobReading {
	return slices.Delete(readings, 0, max(0, len(readings)-n))
}

// forget drops the namespaces that are no more, and makes room for new ones.
func (b *jobLedgers) forget(v View) {
	known := map[string]bool{}
	for _, space := range v.jobSpaces() {
		known[space.ns.Name] = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	gone := func(name string) bool { return !known[name] }
	maps.DeleteFunc(b.spaces, func(name string, _ *jobFigures) bool { return gone(name) })
	b.drops.Forget(gone)
	maps.DeleteFunc(b.tables, func(key tableKey, _ *queueTable) bool { return gone(key.namespace) })
	for name := range known {
		if b.spaces[name] == nil {
			b.spaces[name] = &jobFigures{queues: -1, tracked: map[string]*trackedQueue{}}
		}
	}
}

// readAges counts the queues of every namespace, one after the other.
func (b *jobLedgers) readAges(ctx context.Context) time.Duration {
	began := time.Now()
	v := b.source()
	b.forget(v)
	for _, space := range v.jobSpaces() {
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		_, err := b.table(bounded, space, "")
		if err == nil {
			_, err = b.pauses(bounded, space)
		}
		cancel()
		if err != nil {
			b.log.Debug("queues not counted", zap.String("namespace", space.ns.Name), zap.Error(err))
		}
	}
	return time.Since(began)
}

// jobOutcomes are the totals of a ledger by their label.
func jobOutcomes(l job.Ledger) map[string]int64 {
	return map[string]int64{
		"published": l.Published,
		"acked":     l.Acked,
		"expired":   l.Expired,
		"deleted":   l.Deleted,
		"lost":      l.Lost,
		"died":      l.Died,
		"respawned": l.Respawned,
	}
}

// jobStates are how many jobs there are by state.
func jobStates(l job.Ledger) map[string]int64 {
	return map[string]int64{"ready": l.Ready, "prepared": l.Prepared, "delayed": l.Delayed,
		"leased": l.Leased, "dead": l.Dead}
}

var (
	accountJobsTotal = accountCounter("jobs_total",
		"Jobs by outcome, since the first one: published = acked + expired + deleted + lost + what "+
			"spillway_account_jobs has. Died are those that became dead letters, respawned those of them that were made ready again.", "outcome")
	accountJobs   = accountGauge("jobs", "Jobs stored now, by state: ready, prepared, delayed, leased or dead.", "state")
	accountQueues = accountGauge("queues",
		"Queues with jobs, when they were last counted: every 10 s, or less often where there are many.")
	accountOldestJob = accountGauge("oldest_ready_job_seconds",
		"Time since the publish of the first ready job of a queue, of the queue where "+
			"that is longest, when they were last counted: every 10 s, or less often where there are many; of 1,024 queues.")
	maxJobs = metric.GaugeOf("spillway_namespace_max_jobs",
		"Jobs that the namespace may hold. A publish beyond is rejected.", "namespace")
)

// figures are those of the last readings: they read nothing.
func (b *jobLedgers) figures() metric.Figures {
	all := []metric.Figure{accountJobsTotal, accountJobs, accountKeys, accountQueues, accountOldestJob, maxJobs}
	return metric.Figures{All: all, Read: func(send metric.Send) {
		limits := map[string]int64{}
		for _, space := range b.source().jobSpaces() {
			limits[space.ns.Name] = space.ns.Policy.MaxJobs
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for namespace, f := range b.spaces {
			if limit := limits[namespace]; limit > 0 {
				send(maxJobs, float64(limit), namespace)
			}
			if f.queues >= 0 {
				send(accountQueues, float64(f.queues), namespace)
				send(accountOldestJob, float64(f.oldestAge)/1000, namespace)
			}
			if len(f.recent) == 0 {
				continue
			}
			l := f.recent[len(f.recent)-1].Ledger
			for outcome, n := range jobOutcomes(l) {
				send(accountJobsTotal, float64(n), namespace, outcome)
			}
			send(accountKeys, float64(l.Keys), namespace)
			for state, n := range jobStates(l) {
				send(accountJobs, float64(n), namespace, state)
			}
		}
	}}
}

// QueueOverview is one namespace of kind queue in the overview. All of it is the store's, but
// the sinks are of this process.
type QueueOverview struct {
	Namespace        string             `json:"namespace"`
	Kind             string             `json:"kind"` // queue or php
	Ledger           job.Ledger         `json:"ledger"`
	Jobs             int64              `json:"jobs"` // ready, delayed, leased and dead
	MaxJobs          int64              `json:"max_jobs"`
	Queues           *int64             `json:"queues"`              // null: not counted yet
	OldestReadyAgeMS *int64             `json:"oldest_ready_age_ms"` // null: no job is ready, or not counted yet
	ReadAtMS         int64              `json:"read_at_ms"`          // 0: not read yet
	Rates            map[string]float32 `json:"rates"`               // a second, by outcome; empty where not known
	Sinks            []Sink             `json:"sinks"`               // that its jobs are pushed to
	Largest          *LargestQueue      `json:"largest"`             // null: not counted
	// Schedules is null where they are not counted yet; ticks are of this process.
	Schedules *job.ScheduleTotals `json:"schedules"`
	Outbox    OutboxState         `json:"outbox"`
}

// LargestQueue is the one with most jobs.
type LargestQueue struct {
	Queue string `json:"queue"`
	Jobs  int64  `json:"jobs"`
}

// OutboxState is the follow-ups of jobs that ended which are not in their queues yet.
type OutboxState struct {
	Jobs        int64 `json:"jobs"`
	OldestAgeMS int64 `json:"oldest_age_ms"` // 0: none waits
}

// watch notes that somebody looks.
func (b *jobLedgers) watch() {
	b.mu.Lock()
	b.watched.look(time.Now())
	b.mu.Unlock()
}

// overview is what is known of the namespaces of kind queue, of all or of one; j judges them.
func (b *jobLedgers) overview(v View, only string, now time.Time, j *judge) []QueueOverview {
	list, sinks := []QueueOverview{}, v.pushSinks()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, space := range v.jobSpaces() {
		ns := space.ns
		if only != "" && ns.Name != only {
			continue
		}
		q := QueueOverview{
			Namespace: ns.Name,
			Kind:      kindOf(ns),
			MaxJobs:   ns.Policy.MaxJobs,
			Rates:     map[string]float32{},
			Sinks:     []Sink{},
		}
		if totals := ns.ScheduleTotals(); totals.Known {
			q.Schedules = &totals
		}
		if jobs, since := ns.Outbox(); jobs > 0 {
			q.Outbox = OutboxState{jobs, max(0, now.UnixMilli()-since)}
		}
		f := b.spaces[ns.Name]
		if f == nil { // it is new
			f = &jobFigures{queues: -1}
		}
		f.fill(&q, now)
		q.Largest = f.counted.largest()
		for _, s := range sinks[ns.Name] {
			if s.Fails() {
				s.Waiting, s.Queue = f.counted.waiting(s.takes)
			}
			q.Sinks = append(q.Sinks, s.Sink)
		}
		list = append(list, q)
		e := evidence{late: f.last().late(now, ns.Rest(), b.watched), ends: b.drops.Now(ns.Name, now), sinkOf: func(queue string) *Sink {
			for _, s := range sinks[ns.Name] {
				if s.takes(queue) {
					return &s.Sink
				}
			}
			return nil
		}}
		if died, dies := e.ends["died"]; dies && !f.dyingAt.Before(died.Since) {
			e.dying = f.dying
		}
		e.paused = f.pausedNow()
		if v.Health.Ready() == nil {
			j.queue(q, e)
		}
	}
	return list
}

func (f *jobFigures) fill(q *QueueOverview, now time.Time) {
	if f.queues >= 0 {
		queues := int64(f.queues)
		q.Queues = &queues
	}
	if len(f.recent) == 0 {
		return
	}
	last := f.recent[len(f.recent)-1]
	q.Ledger, q.ReadAtMS = last.Ledger, last.at.UnixMilli()
	q.Jobs = last.Ready + last.Prepared + last.Delayed + last.Leased + last.Dead
	if f.oldest > 0 && last.Ready > 0 {
		age := max(0, now.UnixMilli()-f.oldest)
		q.OldestReadyAgeMS = &age
	}
	q.Rates = f.rates(now)
}

// counts are those of the namespace, as they were read last.
func (f *jobFigures) counts() (c queueCounts) {
	l := f.recent[len(f.recent)-1].Ledger
	c.Ready, c.Pending, c.Dead, c.OldestReady = l.Ready, l.Prepared+l.Delayed+l.Leased, l.Dead, f.oldest
	return c
}

// rates are those of the last seconds, by outcome; none where they are not known.
func (f *jobFigures) rates(now time.Time) map[string]float32 {
	rates := map[string]float32{}
	if len(f.recent) == 0 {
		return rates
	}
	first, last := f.recent[0], f.recent[len(f.recent)-1]
	if seconds := last.at.Sub(first.at).Seconds(); seconds > 0 && now.Sub(last.at) < history.RecentFor {
		before := jobOutcomes(first.Ledger)
		for outcome, n := range jobOutcomes(last.Ledger) {
			rates[outcome] = float32(float64(max(0, n-before[outcome])) / seconds)
		}
	}
	return rates
}
