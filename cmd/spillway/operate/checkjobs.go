package operate

import (
	"context"
	"fmt"
	"net/url"
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

// queue holds one namespace of kind queue against the thresholds.
func (c *Check) queue(ctx context.Context, api *client, r *checkResult, now int64, q queueState) error {
	path, err := namespacePath(q.Namespace)
	if err != nil {
		return err
	}
	var account admin.QueueAccount
	if _, err := api.get(ctx, path, url.Values{"since_ms": {digits(c.Since.Milliseconds())}}, &account); err != nil {
		return err
	}
	l := account.Changes
	f := queueFigure{Namespace: q.Namespace, Ready: q.Ledger.Ready, Dead: q.Ledger.Dead, Failed: l.Expired + l.Lost + l.Died, Lost: l.Lost, published: l.Published, acked: l.Acked}
	f.FailedPerS = float64(f.Failed) / c.Since.Seconds()
	if q.MaxJobs > 0 {
		f.Fill = float64(q.Jobs) / float64(q.MaxJobs)
	}
	if q.OldestReadyAgeMS != nil {
		f.ReadyAgeSec = float64(*q.OldestReadyAgeMS) / 1000
	}
	switch s := max(above(f.FailedPerS, c.DropsWarning, 0), above(float64(l.Expired)/c.Since.Seconds(), c.DropsWarning, c.DropsCritical)); {
	case f.Lost > 0: // whatever the thresholds: a queue never loses a job by itself
		r.add(statusCritical, q.Namespace, "lost", "%s lost in the last %v: something other than Spillway removed them from Redis", some(f.Lost, "job was", "jobs were"), c.Since)
	case s != statusOK:
		r.add(s, q.Namespace, "failed", "%s not acked in the last %v: %d expired, %d dead (dead letters are kept)", some(f.Failed, "job was", "jobs were"), c.Since, l.Expired, l.Died)
	}
	if s := above(f.ReadyAgeSec, c.ReadyAgeWarning.Seconds(), c.ReadyAgeCritical.Seconds()); s != statusOK {
		r.add(s, q.Namespace, "ready_age", "the oldest ready job was published %s ago", since(*q.OldestReadyAgeMS))
	}
	if s := above(float64(f.Ready), float64(c.BacklogWarning), float64(c.BacklogCritical)); s != statusOK {
		r.add(s, q.Namespace, "backlog", "%s ready", some(f.Ready, "job is", "jobs are"))
	}
	if s := above(f.Fill, fillWarning, fillCritical); s != statusOK {
		r.add(s, q.Namespace, "fill", "%s", q.risk())
	}
	idle := ""
	if q.waiting() == 0 {
		idle = "no job waits for it, the next one tries it again"
	}
	f.FailingSinks, f.FailingSecs = c.sinks(r, now, q.Namespace, q.Sinks, idle)
	if c.Audit {
		if f.Residual, err = c.residual(ctx, api, r, q.Namespace); err != nil {
			return err
		}
	}
	r.Queues = append(r.Queues, f)
	return nil
}

func (f *queueFigure) text(since time.Duration) string {
	age := "none is ready"
	if f.Ready > 0 {
		age = fmt.Sprintf("%d ready", f.Ready)
	}
	return fmt.Sprintf("%s: %s; in the last %v published %d, acked %d, failed %d; %s%s", f.Namespace, age, since, f.published, f.acked, f.Failed,
		some(f.Dead, "dead letter", "dead letters"), audited(f.Residual))
}
