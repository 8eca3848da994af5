package admin

import (
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
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
		accountLetterBytes, accountLettersGone, accountPurged, accountJobsTotal, accountJobs, accountQueues, accountOldestJob, maxJobs}
	return metric.Figures{All: all, Read: func(send metric.Send) {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, ns := range o.source().jobSpaces() {
			if limit := ns.ns.Policy.MaxJobs; limit > 0 && o.spaces[ns.ns.Name] != nil {
				send(maxJobs, float64(limit), ns.ns.Name)
			}
		}
		for namespace, f := range o.spaces {
			if t := f.counted; t != nil {
				send(accountQueues, float64(t.jobs), namespace)
				send(accountOldestJob, t.oldestAge().Seconds(), namespace)
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
	for state, n := range jobStates(f.jobs) {
		send(accountJobs, float64(n), namespace, state)
	}
}

var (
	oldestEntry = accountGauge("oldest_age_seconds",
		"Age of the oldest entry when the sweep last read its partition: at most 400 partitions are read a second, all of them in turn.")
	maxAge = metric.GaugeOf("spillway_namespace_max_age_seconds",
		"Age at which an undelivered entry expires.", "namespace")
)

// ages are the two sides of a comparison for Prometheus: how old the oldest entry of a
// namespace is, and at which age it expires. They read nothing.
func (s *sweep) ages() metric.Figures {
	return metric.Figures{All: []metric.Figure{oldestEntry, maxAge}, Read: func(send metric.Send) {
		store := s.source().Store
		if store == nil {
			return
		}
		for _, ns := range store.Namespaces() {
			send(maxAge, ns.Policy.MaxAge.Seconds(), ns.Name)
			if age, known := s.oldestAge(ns.Name); known {
				send(oldestEntry, age.Seconds(), ns.Name)
			}
		}
	}}
}

// oldestAge is not the age of now: an entry that was read a while ago may be delivered
// since, and grow no older. known is false before the first pass over all partitions.
func (s *sweep) oldestAge(namespace string) (age time.Duration, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.spaces[namespace]
	if sp == nil || sp.completed == 0 {
		return 0, false
	}
	return time.Duration(sp.oldestAge) * time.Millisecond, true
}
