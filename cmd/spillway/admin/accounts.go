package admin

import (
	"slices"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/metric"
)

// outcomes are the totals of an account by their label. None ever falls: entries that
// were evicted while leased and settled after all stay evicted, and count as reclaimed, too.
func outcomes(o partition.Overview) map[string]int64 {
	l := o.Ledger
	return map[string]int64{
		"accepted": l.Accepted, "delivered": l.Delivered, "evicted": l.Evicted + o.Reclaimed, "reclaimed": o.Reclaimed,
		"expired": l.Expired, "dead": l.Dead, "lost": l.Lost,
	}
}

// endings are outcomes for people: what operators purged is no eviction.
func endings(o partition.Overview) map[string]int64 {
	totals := outcomes(o)
	totals["evicted"] -= o.Purged
	totals["purged"], totals["dead_letters_evicted"] = o.Purged, o.DeadEvicted
	return totals
}

// A window is the totals of the last seconds, the latest last.
type window []struct {
	at     time.Time
	totals map[string]int64
}

// add begins anew where a total fell: that is the account of another store.
func (w *window) add(at time.Time, totals map[string]int64) {
	if n := len(*w); n > 0 {
		for name, before := range (*w)[n-1].totals {
			if totals[name] < before {
				*w = nil
				break
			}
		}
	}
	*w = append(*w, window{{at, totals}}...)
	*w = slices.Delete(*w, 0, max(0, len(*w)-rateSpan-1))
}

// rates sets the mean of outcomes a second, where it is known.
func (w window) rates(rates map[string]float32, outcomes []string, now time.Time) {
	if len(w) == 0 {
		return
	}
	first, last := w[0], w[len(w)-1]
	if seconds := last.at.Sub(first.at).Seconds(); seconds > 0 && now.Sub(last.at) < recentFor {
		for _, name := range outcomes {
			rates[name] = float32(float64(last.totals[name]-first.totals[name]) / seconds)
		}
	}
}

// accountGauge is a figure of the store about a namespace.
func accountGauge(name, help string, labels ...string) metric.Figure {
	return metric.GaugeOf("spillway_account_"+name, help+sameEverywhere, append([]string{"namespace"}, labels...)...)
}

// accountCounter is one that never falls.
func accountCounter(name, help string, labels ...string) metric.Figure {
	return metric.CounterOf("spillway_account_"+name, help+sameEverywhere, append([]string{"namespace"}, labels...)...)
}

const sameEverywhere = " The store's figure: the same in every process."

var (
	accountEntries = accountCounter("entries_total",
		"Entries by outcome, since the first one: accepted = delivered + evicted - reclaimed + "+
			"expired + dead + lost + buffered.", "outcome")
	accountBuffered   = accountGauge("buffered_entries", "Entries stored now.")
	accountPartitions = accountGauge("partitions", "Partitions with entries now.")
	accountKeys       = accountGauge("idempotency_keys",
		"Idempotency keys that are remembered now. They are counted in steps: up to a quarter more than there are.")
	accountOverdue = accountGauge("overdue_seconds",
		"How long the first partition in the queue has been due.")
	accountLetters     = accountGauge("dead_letters", "Dead letters kept now.")
	accountLetterBytes = accountGauge("dead_letter_bytes", "Bytes of the dead letters kept now.")
	accountPurged      = accountCounter("purged_entries_total",
		"Entries that operators purged. They are among the evicted ones.")
	accountLettersGone = accountCounter("dead_letters_evicted_total",
		"Dead letters that max_dead or max_dead_bytes dropped.")
	oldestEntry = accountGauge("oldest_age_seconds",
		"Age of the oldest entry when the sweep last read its partition: at most 400 partitions are read a second, all of them in turn.")
	maxAge = metric.GaugeOf("spillway_namespace_max_age_seconds",
		"Age at which an undelivered entry expires.", "namespace")
)

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

// metrics are those of the last readings: they read nothing, so a scrape costs the store nothing.
func (o *observer) metrics() metric.Figures {
	all := []metric.Figure{accountEntries, accountBuffered, accountPartitions, accountKeys, accountOverdue, accountLetters,
		accountLetterBytes, accountLettersGone, accountPurged, accountJobsTotal, accountJobs, accountQueues, accountOldestJob, maxJobs,
		oldestEntry, maxAge}
	return metric.Figures{All: all, Read: func(send metric.Send) {
		v := o.source()
		if v.Store != nil {
			for _, ns := range v.Store.Namespaces() {
				send(maxAge, ns.Policy.MaxAge.Seconds(), ns.Name)
			}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, ns := range v.jobSpaces() {
			if limit := ns.ns.Policy.MaxJobs; limit > 0 && o.spaces[ns.ns.Name] != nil {
				send(maxJobs, float64(limit), ns.ns.Name)
			}
		}
		for namespace, f := range o.spaces {
			if t := f.counted; t != nil {
				send(accountQueues, float64(t.jobs), namespace)
				send(accountOldestJob, t.oldestAge().Seconds(), namespace)
			}
			if f.completed > 0 { // not the age of now: what was read a while ago may be delivered since
				send(oldestEntry, float64(f.oldestAge)/1000, namespace)
			}
			switch {
			case f.at.IsZero():
			case f.of == &o.queues:
				f.sendJobs(send, namespace)
			default:
				f.sendEntries(send, namespace)
			}
		}
	}}
}

func (f *figures) sendEntries(send metric.Send, namespace string) {
	for outcome, n := range outcomes(f.Overview) {
		send(accountEntries, float64(n), namespace, outcome)
	}
	send(accountBuffered, float64(f.Ledger.Buffered), namespace)
	send(accountPartitions, float64(f.Partitions), namespace)
	send(accountKeys, float64(f.Keys), namespace)
	send(accountOverdue, f.Overdue.Seconds(), namespace)
	send(accountLetters, float64(f.DeadLetters), namespace)
	send(accountLetterBytes, float64(f.DeadBytes), namespace)
	send(accountPurged, float64(f.Purged), namespace)
	send(accountLettersGone, float64(f.DeadEvicted), namespace)
}

func (f *figures) sendJobs(send metric.Send, namespace string) {
	for outcome, n := range f.totals {
		send(accountJobsTotal, float64(n), namespace, outcome)
	}
	send(accountKeys, float64(f.jobs.Keys), namespace)
	for state, n := range f.jobs.States() {
		send(accountJobs, float64(n), namespace, state)
	}
}
