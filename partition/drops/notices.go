package drops

import (
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"
)

// quietFor is how long nothing of a kind must be dropped for the log to say that it
// ended. While it goes on, the log repeats it as often.
const quietFor = time.Minute

// Notices say in the log what is dropped, and when that ends. They are safe for concurrent use; nil
// ones know of nothing.
type Notices struct {
	log   *zap.Logger
	unit  string            // entries or jobs
	words map[string]string // what happens to them, by outcome: the log begins with it

	mu    sync.Mutex
	known map[[2]string]*Ending // by namespace and outcome
}

// An Ending is a time in which entries of a namespace end in one way, again and again.
type Ending struct {
	Since, Last time.Time // Since is zero while there is none
	N           int64     // since then
	logged      time.Time
}

// NewNotices makes notices about a unit, entries or jobs. words say what happens to them, by
// outcome; the log begins with it.
func NewNotices(log *zap.Logger, unit string, words map[string]string) *Notices {
	return &Notices{log: log, unit: unit, words: words, known: map[[2]string]*Ending{}}
}

// Note compares two readings of a ledger's totals.
func (n *Notices) Note(namespace string, before, now map[string]int64, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for outcome, words := range n.words {
		key, more := [2]string{namespace, outcome}, now[outcome]-before[outcome]
		e := n.known[key]
		switch {
		case e == nil && more <= 0: // as for most outcomes of most namespaces, each second
			continue
		case e == nil:
			e = &Ending{}
			n.known[key] = e
		}
		e.note(n.log.With(zap.String("namespace", namespace), zap.String("outcome", outcome)), words, n.unit, more, at)
	}
}

// Now are the endings of a namespace, by outcome, whose last entry was less than a minute ago.
func (n *Notices) Now(namespace string, at time.Time) map[string]Ending {
	found := map[string]Ending{}
	if n == nil {
		return found
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for outcome := range n.words {
		if e := n.known[[2]string{namespace, outcome}]; e != nil && at.Sub(e.Last) < quietFor {
			found[outcome] = *e
		}
	}
	return found
}

// note says in the log that n of unit ended in one way since the last note: at once, each
// minute while it goes on, and when none did for a minute.
func (e *Ending) note(log *zap.Logger, words, unit string, n int64, at time.Time) {
	if n > 0 {
		if e.Since.IsZero() {
			*e = Ending{Since: at}
		}
		e.Last, e.N = at, e.N+n
		if at.Sub(e.logged) >= quietFor {
			e.logged = at
			log.Warn(words, zap.Int64(unit, e.N), zap.Duration("for", at.Sub(e.Since)))
		}
	} else if !e.Since.IsZero() && at.Sub(e.Last) >= quietFor {
		log.Info("no "+unit+" ended that way for a minute", zap.Int64(unit, e.N),
			zap.Duration("for", e.Last.Sub(e.Since)))
		*e = Ending{}
	}
}

// Forget drops what is known of the namespaces that gone names.
func (n *Notices) Forget(gone func(namespace string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.known, func(key [2]string, _ *Ending) bool { return gone(key[0]) })
}
