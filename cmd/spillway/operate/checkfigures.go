package operate

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// queueFigure is what was measured of one namespace of kind queue.
type queueFigure struct {
	Namespace    string  `json:"namespace"`
	ReadyAgeSec  float64 `json:"ready_age_s"` // since the publish of the first ready job of a queue; 0: none is ready
	Ready        int64   `json:"ready"`
	Dead         int64   `json:"dead"`
	Fill         float64 `json:"fill"`          // of max_jobs
	Failed       int64   `json:"failed"`        // expired, dead or lost in --since
	FailedPerS   float64 `json:"failed_per_s"`  // the mean over it
	Lost         int64   `json:"lost"`          // of them
	FailingSinks int     `json:"failing_sinks"` // of those that its jobs are pushed to
	FailingSecs  float64 `json:"failing_s"`     // the sink that fails for longest
	Residual     *int64  `json:"residual,omitempty"`
	published    int64
	acked        int64
}

// Shares of max_jobs.
const (
	fillWarning  = 0.8
	fillCritical = 0.95
)

// outboxWarning is how long the first follow-up waits for its queue when that is a warning: a
// mover takes a second.
const outboxWarning = time.Minute

// checkQueue holds one namespace of kind queue against the thresholds.
func (c *Check) checkQueue(ctx context.Context, r *checkResult, now int64, q queueState) error {
	var account admin.QueueAccount
	_, err := c.namespace(q.Namespace).set("since_ms", digits(c.Since.Milliseconds())).get(ctx, &account)
	if err != nil {
		return err
	}
	l := account.Changes
	f := queueFigure{
		Namespace: q.Namespace,
		Ready:     q.Ledger.Ready,
		Dead:      q.Ledger.Dead,
		Failed:    l.Expired + l.Lost + l.Died,
		Lost:      l.Lost,
		published: l.Published,
		acked:     l.Acked,
	}
	f.FailedPerS = float64(f.Failed) / c.Since.Seconds()
	if q.MaxJobs > 0 {
		f.Fill = float64(q.Jobs) / float64(q.MaxJobs)
	}
	if q.OldestReadyAgeMS != nil {
		f.ReadyAgeSec = float64(*q.OldestReadyAgeMS) / 1000
	}
	switch s := max(above(f.FailedPerS, c.DropsWarning, 0),
		above(float64(l.Expired)/c.Since.Seconds(), c.DropsWarning, c.DropsCritical)); {
	case f.Lost > 0: // whatever the thresholds: a queue never loses a job by itself
		r.add(statusCritical, q.Namespace, "lost",
			"%s lost in the last %v: something other than Spillway removed them from Redis",
			some(f.Lost, "job was", "jobs were"), c.Since)
	case s != statusOK:
		r.add(s, q.Namespace, "failed", "%s not acked in the last %v: %d expired, %d dead (dead letters are kept)",
			some(f.Failed, "job was", "jobs were"), c.Since, l.Expired, l.Died)
	}
	if s := above(f.ReadyAgeSec, c.ReadyAgeWarning.Seconds(),
		c.ReadyAgeCritical.Seconds()); s != statusOK {
		r.add(s, q.Namespace, "ready_age", "the oldest ready job was published %s ago",
			since(*q.OldestReadyAgeMS))
	}
	if s := above(float64(f.Ready), float64(c.BacklogWarning),
		float64(c.BacklogCritical)); s != statusOK {
		r.add(s, q.Namespace, "backlog", "%s ready", some(f.Ready, "job is", "jobs are"))
	}
	if s := above(f.Fill, fillWarning, fillCritical); s != statusOK {
		r.add(s, q.Namespace, "fill", "%s", q.risk())
	}
	c.checkSchedules(r, &q.QueueOverview)
	idle := ""
	if q.waiting() == 0 {
		idle = "no job waits for it, the next one tries it again"
	}
	f.FailingSinks, f.FailingSecs = c.sinks(r, now, q.Namespace, q.Sinks, idle)
	if c.Audit {
		if f.Residual, err = c.residual(ctx, r, q.Namespace); err != nil {
			return err
		}
	}
	r.Queues = append(r.Queues, f)
	return nil
}

// checkSchedules warns of what does not fire, and of follow-ups that wait.
func (c *Check) checkSchedules(r *checkResult, q *admin.QueueOverview) {
	if s := q.Schedules; s != nil && s.Overdue > 0 {
		r.add(statusWarning, q.Namespace, "overdue", "%s overdue by more than 10 s",
			some(s.Overdue, "schedule is", "schedules are"))
	}
	if s := q.Schedules; s != nil && s.Gone > 0 {
		r.add(statusWarning, q.Namespace, "owners",
			"%s gone, and their schedules do not fire: see spillway schedules owners %s",
			some(s.Gone, "service is", "services are"), q.Namespace)
	}
	if age := time.Duration(q.Outbox.OldestAgeMS) * time.Millisecond; age >= outboxWarning {
		r.add(statusWarning, q.Namespace, "outbox",
			"%s for %s: the queue that should hear is full, or nobody moves them",
			some(q.Outbox.Jobs, "follow-up waits", "follow-ups wait"), since(q.Outbox.OldestAgeMS))
	}
}

func (f *queueFigure) text(since time.Duration) string {
	age := "none is ready"
	if f.Ready > 0 {
		age = fmt.Sprintf("%d ready", f.Ready)
	}
	return fmt.Sprintf("%s: %s; in the last %v published %d, acked %d, failed %d; %s%s",
		f.Namespace, age,
		since, f.published, f.acked, f.Failed,
		some(f.Dead, "dead letter", "dead letters"), audited(f.Residual))
}

// maxSince is how far back the service keeps rates by the second.
const maxSince = 15 * time.Minute

// dropped counts the entries of a namespace that were dropped within the given time, by
// reason. It is nil where the service keeps no history: of namespaces beyond the first
// 64, or in an old version.
func (c *Connection) dropped(ctx context.Context, namespace string,
	within time.Duration) (*rates, error) {
	var history struct {
		StepMS int64                 `json:"step_ms"`
		Series map[string][]*float64 `json:"series"` // entries a second, the oldest first
	}
	_, err := c.call("/api/v1/history").set("namespace", namespace).get(ctx, &history)
	if answered(err).status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil || history.StepMS <= 0 {
		return nil, err
	}
	step := time.Duration(history.StepMS) * time.Millisecond
	known := false
	count := func(series string) float64 {
		values := history.Series[series]
		n, is := entries(values, int((within+step-1)/step), step.Seconds())
		known = known || is
		return n
	}
	counts := rates{
		Evicted:        count("evicted"),
		Expired:        count("expired"),
		Dead:           count("dead"),
		Lost:           count("lost"),
		LettersEvicted: count("dead_letters_evicted"),
	}
	if !known {
		return nil, nil
	}
	return &counts, nil
}

// entries adds up the last points of a series of rates. A rate is the mean since the
// last point that has one, so it counts for the points between them, too.
func entries(perSecond []*float64, points int, step float64) (sum float64, known bool) {
	first := max(0, len(perSecond)-points)
	last := -1 // point with a rate
	for i, v := range perSecond {
		if v == nil {
			continue
		}
		if known = true; i >= first {
			covered := 1
			if last >= 0 {
				covered = i - last
			}
			sum += *v * float64(covered) * step
		}
		last = i
	}
	return sum, known
}

// wholeEntries rounds, but some are at least one.
func wholeEntries(n float64) int64 {
	if n <= 0 {
		return 0
	}
	return max(1, int64(math.Round(n)))
}
