package operate

import (
	"cmp"
	"fmt"
	"strings"

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
	var parts []string
	for _, part := range []struct {
		value float64
		what  string
	}{{r.Expired, "expired %s/s (nobody acked them within their ttl)"}, {r.Died, "dead %s/s (tries used up, or buried; dead letters are kept)"}, {r.Lost, "lost %s/s (removed from Redis, not by Spillway)"}} {
		if part.value > 0 {
			parts = append(parts, fmt.Sprintf(part.what, rate(part.value)))
		}
	}
	return strings.Join(parts, ", ")
}

// staleMS is when a ledger, which is read every second, says that its Redis does not answer.
const staleMS = 15_000

func stale(readAt, now int64) bool { return now-readAt > staleMS }

// unread says that the figures of a namespace are old.
func unread(readAt, now int64) string {
	if readAt == 0 {
		return "its Redis has not answered yet: what clients send is refused"
	}
	return "its Redis has not answered for " + since(now-readAt) + ": what clients send is refused, and these figures are old"
}

// losses are what happens to the jobs of one namespace that should not. Expired and lost
// jobs are gone; dead letters, a namespace nearly full and jobs whose sink fails are a risk.
func (q *queueState) losses(now int64) (found []loss) {
	cause, why := q.cause(now), []string{}
	for _, text := range []string{cause, q.risk()} {
		if text != "" {
			why = append(why, text)
		}
	}
	reasons := strings.Join(why, "; ")
	switch r := q.Rates; {
	case r.Expired+r.Lost > 0:
		found = append(found, loss{q.Namespace, kindLosing, r.failed(), r.text(), cmp.Or(reasons, "see spillway jobs ls "+q.Namespace)})
	case r.Died > 0:
		found = append(found, loss{q.Namespace, kindAtRisk, r.Died, r.text(), cmp.Or(reasons, "see spillway jobs ls --sort=dead "+q.Namespace)})
	case q.risk() != "":
		found = append(found, loss{q.Namespace, kindAtRisk, 0, q.risk(), cmp.Or(cause, "see spillway jobs ls "+q.Namespace)})
	case cause != "" && q.waiting() > 0:
		found = append(found, loss{q.Namespace, kindAtRisk, 0, q.waitText(), cause})
	}
	return found
}

// waiting are the jobs that a sink may still be sent. One whose last Write failed is delayed.
func (q *queueState) waiting() int64 { return q.Ledger.Ready + q.Ledger.Delayed + q.Ledger.Leased }

func (q *queueState) waitText() string {
	text := some(q.waiting(), "job waits", "jobs wait")
	if q.Ledger.Delayed > 0 {
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
		text += "; " + some(more, "more sink fails", "more sinks fail") + ": see spillway check " + q.Namespace
	}
	return text
}

// risk says that soon no job may be published.
func (q *queueState) risk() string {
	if q.MaxJobs > 0 && float64(q.Jobs) >= riskShare*float64(q.MaxJobs) {
		return fmt.Sprintf("it holds %d of %d jobs: publishes beyond that are refused", q.Jobs, q.MaxJobs)
	}
	return ""
}

func jobsTable(o *overview) *table {
	t := newTable("NAMESPACE", ">PUBLISHED/s", ">ACKED/s", ">FAILED/s", ">LOST", ">READY", ">DELAYED", ">LEASED", ">DEAD", ">OLDEST READY", ">QUEUES", "SINK")
	for _, q := range o.Queues {
		l, queues := q.Ledger, "-"
		if q.Queues != nil {
			queues = digits(*q.Queues)
		}
		figure := o.figure(q.ReadAtMS)
		cells := []string{q.Namespace, figure(q.Rates.Published), figure(q.Rates.Acked), figure(q.Rates.failed())}
		for _, n := range []int64{l.Lost, l.Ready, l.Delayed, l.Leased, l.Dead} {
			cells = append(cells, digits(n))
		}
		t.add(append(cells, sinceOr(q.OldestReadyAgeMS, "-"), queues, worstState(q.Sinks))...)
	}
	return t
}
