package operate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// queueState is one namespace of kind queue in the overview.
type queueState struct {
	admin.QueueOverview
	Rates jobRates `json:"rates"`
}

// jobRates are a second.
type jobRates struct {
	Published float64 `json:"published"`
	Acked     float64 `json:"acked"`
	Expired   float64 `json:"expired"`
	Lost      float64 `json:"lost"`
	Died      float64 `json:"died"`
}

// failed is what was published and not acked, a second. Dead letters are kept, and can be
// made ready again; they still need a person.
func (r *jobRates) failed() float64 { return r.Expired + r.Lost + r.Died }

func (r *jobRates) text() string {
	return reasons(perSecond, []reason{
		{r.Expired, "expired %s (nobody acked them within their ttl)"}, {r.Died,
			"dead %s (tries used up, or buried; dead letters are kept)"},
		{r.Lost, "lost %s (removed from Redis, not by Spillway)"},
	})
}

// losses are what happens to the jobs of one namespace that should not. Expired and lost
// jobs are gone; dead letters, a namespace nearly full and jobs whose sink fails are a risk.
func (q *queueState) losses(now int64) (found []loss) {
	cause, risk := q.cause(now), q.risk()
	why := cmp.Or(cause, risk)
	if cause != "" && risk != "" {
		why += "; " + risk
	}
	switch r := q.Rates; {
	case r.Expired+r.Lost > 0:
		found = append(found, loss{q.Namespace, kindLosing, r.failed(), r.text(),
			cmp.Or(why, "see spillway jobs ls "+q.Namespace)})
	case r.Died > 0:
		found = append(found, loss{q.Namespace, kindAtRisk, r.Died, r.text(),
			cmp.Or(why, "see spillway jobs ls --sort=dead "+q.Namespace)})
	case risk != "":
		found = append(found, loss{q.Namespace, kindAtRisk, 0, risk,
			cmp.Or(cause, "see spillway jobs ls "+q.Namespace)})
	case cause != "" && q.waiting() > 0:
		found = append(found, loss{q.Namespace, kindAtRisk, 0, q.waitText(), cause})
	}
	return found
}

// waiting are the jobs that a sink that fails may still be sent; where they are not counted, all
// of the namespace. One whose last Write failed is delayed.
func (q *queueState) waiting() int64 {
	if q.Waiting != nil {
		return *q.Waiting
	}
	return q.Ledger.Ready + q.Ledger.Prepared + q.Ledger.Delayed + q.Ledger.Leased
}

func (q *queueState) waitText() string {
	text := some(q.waiting(), "job waits", "jobs wait")
	if q.Waiting == nil && q.Ledger.Delayed > 0 {
		text += fmt.Sprintf(", %d delayed", q.Ledger.Delayed)
	}
	return text
}

// cause is which sink fails; "" if none does.
func (q *queueState) cause(now int64) string {
	text, more := "", int64(0)
	for _, s := range q.Sinks {
		switch {
		case !fails(&s):
		case text == "":
			text = failureText(&s, now)
		default:
			more++
		}
	}
	if more > 0 {
		text += "; " + some(more, "more sink fails",
			"more sinks fail") + ": see spillway check " + q.Namespace
	}
	return text
}

// risk says that soon no job may be published.
func (q *queueState) risk() string {
	if q.MaxJobs > 0 && float64(q.Jobs) >= fullShare*float64(q.MaxJobs) {
		text := fmt.Sprintf("it holds %d of %d jobs: publishes beyond that are rejected", q.Jobs, q.MaxJobs)
		if l := q.Largest; l != nil {
			text += fmt.Sprintf("; %d are in queue %s", l.Jobs, escape(l.Queue))
		}
		return text
	}
	return ""
}

func (q *queueState) trouble(o *overview) int {
	switch {
	case q.Rates.Expired+q.Rates.Lost > 0:
		return 3
	case q.Rates.Died > 0, q.risk() != "":
		return 2
	case q.cause(o.NowMS) != "", stale(q.ReadAtMS, o.NowMS):
		return 1
	}
	return 0
}

func jobsTable(o *overview) *table {
	t := newTable("NAMESPACE", ">PUBLISHED/s", ">ACKED/s", ">FAILED/s", ">LOST", ">READY", ">DELAYED",
		">LEASED", ">DEAD", ">OLDEST READY", ">QUEUES", "SINK")
	slices.SortStableFunc(o.Queues, func(a, b queueState) int { return cmp.Compare(b.trouble(o), a.trouble(o)) })
	for _, q := range o.Queues {
		l := q.Ledger
		figure := o.figure(q.ReadAtMS)
		cells := []string{q.Namespace, figure(q.Rates.Published), figure(q.Rates.Acked),
			figure(q.Rates.failed())}
		for _, n := range []int64{l.Lost, l.Ready, l.Prepared + l.Delayed, l.Leased, l.Dead} {
			cells = append(cells, digits(n))
		}
		t.add(append(cells, sinceOr(q.OldestReadyAgeMS, "-"), digitsOr(q.Queues, "-"), worstState(q.Sinks))...)
	}
	return t
}
