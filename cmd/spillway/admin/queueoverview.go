package admin

import (
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

// QueueOverview is one namespace of kind queue in the overview. All of it is the store's, but
// the sinks are of this process.
type QueueOverview struct {
	Namespace        string             `json:"namespace"`
	Kind             string             `json:"kind" help:"One of queue and php."`
	Ledger           job.Ledger         `json:"ledger"`
	Jobs             int64              `json:"jobs" help:"Ready, delayed, leased and dead."`
	MaxJobs          int64              `json:"max_jobs"`
	Queues           *int64             `json:"queues" help:"Null: not counted yet."`
	OldestReadyAgeMS *int64             `json:"oldest_ready_age_ms" help:"Null: no job is ready, or not counted yet."`
	ReadAtMS         int64              `json:"read_at_ms" help:"0: not read yet."`
	Rates            map[string]float32 `json:"rates" help:"A second, by outcome; empty where not known."`
	Sinks            []Sink             `json:"sinks" help:"That its jobs are pushed to."`
	Largest          *LargestQueue      `json:"largest" help:"Null: not counted."`
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
	OldestAgeMS int64 `json:"oldest_age_ms" help:"0: none waits."`
}

// queueOverview is what is known of the namespaces of kind queue, of all or of one; j judges them.
func (o *observer) queueOverview(v View, only string, now time.Time, j *judge) []QueueOverview {
	list, sinks := []QueueOverview{}, v.pushSinks()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, space := range v.jobSpaces() {
		ns := space.ns
		if only != "" && ns.Name != only {
			continue
		}
		q := QueueOverview{
			Namespace: ns.Name,
			Kind:      kindOf(ns),
			MaxJobs:   ns.Policy.MaxJobs,
			Sinks:     []Sink{},
		}
		if totals := ns.ScheduleTotals(); totals.Known {
			q.Schedules = &totals
		}
		if jobs, since := ns.Outbox(); jobs > 0 {
			q.Outbox = OutboxState{jobs, max(0, now.UnixMilli()-since)}
		}
		f, rates, e := o.seen(&o.queues, ns.Name, ns.Home, now)
		q.Rates = rates
		f.fill(&q, now)
		for _, s := range sinks[ns.Name] {
			if s.Fails() {
				s.Waiting, s.Queue = f.counted.waiting(s.takes)
			}
			q.Sinks = append(q.Sinks, s.Sink)
		}
		list = append(list, q)
		e.sinkOf = func(queue string) *Sink {
			for _, s := range sinks[ns.Name] {
				if s.takes(queue) {
					return &s.Sink
				}
			}
			return nil
		}
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

func (f *figures) fill(q *QueueOverview, now time.Time) {
	q.Largest = f.counted.largest()
	if f.counted != nil {
		q.Queues = new(int64(f.counted.jobs))
	}
	l := f.jobs
	q.Ledger, q.ReadAtMS = l, unixMilli(f.at)
	q.Jobs = l.Ready + l.Prepared + l.Delayed + l.Leased + l.Dead
	if oldest := f.counted.oldest(); oldest > 0 && l.Ready > 0 {
		q.OldestReadyAgeMS = new(max(0, now.UnixMilli()-oldest))
	}
}
