package admin

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
	"github.com/spillway-io/spillway/partition/lifecycle"
	"github.com/spillway-io/spillway/partition/metric"
	"github.com/spillway-io/spillway/partition/space"
)

const (
	accountsEvery = time.Second
	firstRead     = 250 * time.Millisecond
	// idleFor bounds how long an account that does not change is not read, where two other
	// processes read it every second and nobody watches.
	idleFor = 30 * time.Second
	// accountsShare is the part of the time that reading may take, so that many
	// namespaces or a slow Redis are read less often.
	accountsShare = 20
)

// Accounts reads the account of each namespace every second, see reading.rests. Prometheus gets the last
// one, and the log says when a namespace begins to drop entries, of which kind, how many,
// and when that ends. The accounts are the store's, so every process of a service has the same.
type Accounts struct {
	store Store

	*lifecycle.Loop

	mu       sync.Mutex
	last     map[string]reading // by namespace; absent until it was read
	watched  watched
	lastTook time.Duration // of one reading, which is one round trip

	drops *drops.Notices
}

// NewAccounts makes the reader of a store's accounts and registers its metrics.
func NewAccounts(store Store, reg prometheus.Registerer, log *zap.Logger) *Accounts {
	a := &Accounts{store: store, last: map[string]reading{}}
	a.drops = drops.NewNotices(log, "entries", map[string]string{
		"evicted":              "entries are evicted: partitions are full",
		"expired":              "entries expire: they are older than max_age before a sink takes them",
		"dead":                 "entries become dead letters: the sink rejects them",
		"lost":                 "entries are lost: something other than Spillway removes them from Redis",
		"dead_letters_evicted": "dead letters are dropped: there are more than max_dead or max_dead_bytes keep",
	})
	a.Loop = lifecycle.New("accounts", a.firstRead,
		func(ctx context.Context) { repeat(ctx, accountsEvery, a.read) })
	reg.MustRegister(a.figures())
	return a
}

// firstRead, of 250 ms at most, is for a scrape right after a start or a reload: it finds the
// ledger, where the store is up.
func (a *Accounts) firstRead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, firstRead)
	defer cancel()
	a.read(ctx)
	return nil
}

// read reads every account once. Where the store does not answer, the last one stays;
// watch says in the log that it does not. busy is how long answers took.
func (a *Accounts) read(ctx context.Context) (busy time.Duration) {
	for _, ns := range a.store.Namespaces() {
		began := time.Now()
		a.mu.Lock()
		rests := !a.watched.now(began) && a.last[ns.Name].rests(began, ns.Home().Rest(space.Whole))
		a.mu.Unlock()
		if rests {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		now, err := a.store.Overview(bounded, ns)
		cancel()
		if err != nil {
			continue
		}
		took := time.Since(began)
		busy += took
		a.mu.Lock()
		before, known := a.last[ns.Name]
		read := reading{Overview: now, at: time.Now(), changed: before.changed}
		if now.Ledger != before.Ledger || now.Partitions != before.Partitions {
			read.changed = read.at
		}
		a.last[ns.Name] = read
		a.lastTook = took
		a.mu.Unlock()
		if known {
			a.drops.Note(ns.Name, endings(before.Overview), endings(now), time.Now())
		}
	}
	return busy
}

// took is the time of the last round trip; 0 before the first.
func (a *Accounts) took() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lastTook
}

// watched is since when somebody looks.
type watched struct{ since, last time.Time }

func (w *watched) look(now time.Time) {
	if !w.now(now) {
		w.since = now
	}
	w.last = now
}

func (w *watched) now(now time.Time) bool { return now.Sub(w.last) <= watchedFor }

// rests reports whether the next reading can wait: for as long as the account has not changed, at
// most for idleFor and for what others leave to this process.
func (r reading) rests(now time.Time, others time.Duration) bool { return now.Before(r.due(others)) }

func (r reading) due(others time.Duration) time.Time {
	return r.at.Add(min(idleFor, others, r.at.Sub(r.changed)))
}

// late is how long there should be another reading: it rested, until somebody looked.
func (r reading) late(now time.Time, others time.Duration, w watched) time.Duration {
	due := r.due(others)
	if w.since.Before(due) {
		due = w.since
	}
	if r.at.After(due) {
		due = r.at
	}
	return now.Sub(due)
}

// watch notes that somebody looks.
func (a *Accounts) watch() {
	a.mu.Lock()
	a.watched.look(time.Now())
	a.mu.Unlock()
}

// late is how long the account of a namespace should have been read again.
func (a *Accounts) late(ns *partition.Namespace, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last[ns.Name].late(now, ns.Home().Rest(space.Whole), a.watched)
}

// latest are the last readings by namespace.
func (a *Accounts) latest() map[string]reading {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.last)
}

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

// figures are those of the last readings: they read nothing, so a scrape costs the store nothing.
func (a *Accounts) figures() metric.Figures {
	all := []metric.Figure{accountEntries, accountBuffered, accountPartitions, accountKeys, accountOverdue, accountLetters,
		accountLetterBytes, accountLettersGone, accountPurged}
	return metric.Figures{All: all, Read: func(send metric.Send) {
		for namespace, o := range a.latest() {
			for outcome, n := range outcomes(o.Overview) {
				send(accountEntries, float64(n), namespace, outcome)
			}
			send(accountBuffered, float64(o.Ledger.Buffered), namespace)
			send(accountPartitions, float64(o.Partitions), namespace)
			send(accountKeys, float64(o.Keys), namespace)
			send(accountOverdue, o.Overdue.Seconds(), namespace)
			send(accountLetters, float64(o.DeadLetters), namespace)
			send(accountLetterBytes, float64(o.DeadBytes), namespace)
			send(accountPurged, float64(o.Purged), namespace)
			send(accountLettersGone, float64(o.DeadEvicted), namespace)
		}
	}}
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
