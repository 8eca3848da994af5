package drops

import (
	"maps"
	"time"

	"go.uber.org/zap"
)

// quietFor is how long nothing of a kind must be dropped for the log to say that it
// ended. While it goes on, the log repeats it as often.
const quietFor = time.Minute

// Notices say in the log what is dropped, and when that ends. They are not safe for concurrent use.
type Notices struct {
	log   *zap.Logger
	unit  string                  // entries or jobs
	words map[string]string       // what happens to them, by outcome: the log begins with it
	known map[[2]string]*dropping // by namespace and outcome
}

// A dropping is a time in which entries of a namespace end in one way, again and again.
type dropping struct {
	since, last, logged time.Time // since is zero while there is none
	entries             int64     // since then
}

// NewNotices makes notices about a unit, entries or jobs. words say what happens to them, by
// outcome; the log begins with it.
func NewNotices(log *zap.Logger, unit string, words map[string]string) *Notices {
	return &Notices{log, unit, words, map[[2]string]*dropping{}}
}

// Note compares two readings of a ledger's totals.
func (n *Notices) Note(namespace string, before, now map[string]int64, at time.Time) {
	for outcome, words := range n.words {
		key := [2]string{namespace, outcome}
		if n.known[key] == nil {
			n.known[key] = &dropping{}
		}
		log := n.log.With(zap.String("namespace", namespace), zap.String("outcome", outcome))
		n.known[key].note(log, words, n.unit, now[outcome]-before[outcome], at)
	}
}

// note says in the log that n of unit ended in one way since the last note: at once, each
// minute while it goes on, and when none did for a minute.
func (d *dropping) note(log *zap.Logger, words, unit string, n int64, at time.Time) {
	if n > 0 {
		if d.since.IsZero() {
			*d = dropping{since: at}
		}
		d.last, d.entries = at, d.entries+n
		if at.Sub(d.logged) >= quietFor {
			d.logged = at
			log.Warn(words, zap.Int64(unit, d.entries), zap.Duration("for", at.Sub(d.since)))
		}
	} else if !d.since.IsZero() && at.Sub(d.last) >= quietFor {
		log.Info("no "+unit+" ended that way for a minute", zap.Int64(unit, d.entries),
			zap.Duration("for", d.last.Sub(d.since)))
		*d = dropping{}
	}
}

// Forget drops what is known of the namespaces that gone names.
func (n *Notices) Forget(gone func(namespace string) bool) {
	maps.DeleteFunc(n.known, func(key [2]string, _ *dropping) bool { return gone(key[0]) })
}
