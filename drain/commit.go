package drain

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/spillway-io/spillway/partition"
)

const (
	// commitPauseMin and commitPauseMax bound the wait before a settlement whose
	// outcome is unknown, or that did not run, is sent again.
	commitPauseMin, commitPauseMax = 10 * time.Millisecond, 500 * time.Millisecond
	// stopRetries is how often a settlement is sent again once Stop was called:
	// about a second, for a store that is away must not hold a shutdown up.
	stopRetries = 6
	// mostMoves bounds how often the store may say that the range stands
	// elsewhere, before that is no answer any more.
	mostMoves = 8
)

// A settlement is how far the settling of a lease has come. One commit at most
// is on its way, beside the next Write.
type settlement struct {
	sent    *settling
	unsure  bool  // a commit or release may have run unseen
	ended   bool  // the range is settled to its end, or the rest given back
	lost    bool  // no more to be said: the lease is not ours
	refused error // the store will not settle this partition
	moves   int
	handing int // at-most-once: entries of the commit under way that are not written yet
}

// commitBehind sends what is done on its way, unless a commit still is. What
// gathers meanwhile goes out with the next.
func (r *run) commitBehind() {
	if r.over() || r.sent != nil {
		return
	}
	if c := r.commit(); c != nil {
		r.sent = r.settler().submit(&settling{commit: c})
	}
}

// over takes the answer of the commit on its way, if it has come, and reports
// whether the lease is lost.
func (r *run) over() bool {
	if r.sent != nil {
		select {
		case <-r.sent.done:
			r.note(r.sent)
			r.sent = nil
		default:
		}
	}
	return r.lost
}

// settle commits all that is done and gives back the rest. What the store does
// not answer is repeated, which is safe, for as long as the lease lasts.
func (r *run) settle() error {
	if r.sent != nil {
		<-r.sent.done
		r.note(r.sent)
	}
	for failures := 0; !r.lost && !r.ended; {
		w := &settling{commit: r.commit()}
		if w.commit == nil {
			w.release = r.giveBack()
		}
		if r.send(w) {
			continue
		}
		if failures++; !r.retry(failures) {
			break
		}
	}
	if !r.ended && !r.lost {
		r.lapse()
	}
	return r.refused
}

// send waits for the result of a commit or a release and enters it, as note does.
func (r *run) send(w *settling) bool {
	began := time.Now()
	<-r.settler().submit(w).done
	if w.err() == nil && r.atMostOnce() {
		r.o.commits.took(time.Since(began), false)
	}
	return r.note(w)
}

// retry waits before a settlement is sent again. It is false where that is in
// vain: the lease is lost or over, or Stop waits.
func (r *run) retry(failures int) bool {
	wait := commitPauseMin + backoff(commitPauseMin, commitPauseMax, failures, rand.Float64())
	stopping := r.o.claiming.Err() != nil && failures > stopRetries
	if r.lost || stopping || time.Until(r.lease.Until) < wait || !sleep(r.o.settling, wait) {
		return false
	}
	r.o.metrics.retries.Inc()
	return true
}

// giveBack is the release of what is not done. Where that is nothing, because
// the last entries vanished, it frees those behind the range.
func (r *run) giveBack() *partition.Release {
	s := r.release()
	s.Delay = max(0, time.Until(r.resume))
	if r.doomed.end > r.settled {
		s.Delay = max(s.Delay, time.Until(r.doomed.stale))
	}
	s.Attempt = r.lease.Attempt
	if r.tried <= r.settled {
		s.Attempt-- // this presentation did not take place
	}
	return s
}

// note enters the result of a commit or a release, and reports whether the next may
// follow at once.
func (r *run) note(w *settling) bool {
	var elsewhere *partition.RangeError
	err := w.err()
	switch {
	case err == nil:
		unsure := r.unsure
		r.unsure = false
		if w.release != nil {
			r.ended = true
			return true
		}
		c := w.commit
		// Without an unknown outcome no commit of ours can have run before.
		r.pass(int(c.Hi-r.lease.From), c.AlreadyApplied && !unsure)
		if c.AlreadyApplied {
			r.ended = false // a commit that had ended the lease would be gone: release it
		}
		return true
	case errors.Is(err, partition.ErrGone):
		r.gone()
		return false
	case errors.As(err, &elsewhere):
		return r.moved(elsewhere.From)
	case errors.Is(err, partition.ErrUnknown):
		r.unsure = true
		return false
	case errors.Is(err, partition.ErrUnavailable):
		return false
	case !errors.Is(err, errSettlerStopped):
		r.refused = err
	}
	r.lapse()
	return false
}

// pass counts the entries before at as settled. The last commit ends the lease.
func (r *run) pass(at int, vanished bool) {
	if vanished {
		r.o.metrics.entries.WithLabelValues(outcomeLost).Add(float64(at - r.settled))
	} else {
		r.countSettled(r.settled, at)
	}
	r.settled = at
	r.ended = at == len(r.classes)
}

func (r *run) countSettled(lo, hi int) {
	n := r.count(lo, hi)
	n[delivered] -= min(n[delivered], r.handing) // their Write tells
	r.o.metrics.settled(n)
}

// moved takes up the range where the store says it stands.
func (r *run) moved(seq int64) bool {
	before, done := r.settled, r.progress()
	if r.moves++; r.moves > mostMoves || !r.stands(seq) {
		r.refused = &partition.RangeError{From: seq}
		r.lapse()
		return false
	}
	// Before where we stood: the store lost its newest writes, ours among them,
	// and is told again.
	if now := r.settled; now > before {
		vanished := before
		if r.unsure { // our own commit, which ran unseen
			vanished = min(now, done)
			r.countSettled(before, vanished)
		}
		r.o.metrics.entries.WithLabelValues(outcomeLost).Add(float64(now - vanished))
	}
	r.unsure = false
	return true
}

// gone ends a lease that another drainer took, or whose partition died. After
// an unknown outcome it is rather that the settlement ran unseen.
func (r *run) gone() {
	r.lost = true
	if !r.unsure {
		r.o.metrics.fenced.Inc()
	}
	r.unconfirmed()
}

// lapse gives a lease up to its deadline: the store replays what it had not
// settled.
func (r *run) lapse() {
	r.lost = true
	r.o.metrics.lapsed.Inc()
	r.unconfirmed()
}

func (r *run) unconfirmed() {
	if n := r.progress() - r.settled; n > 0 {
		r.o.metrics.entries.WithLabelValues(outcomeUnconfirmed).Add(float64(n))
	}
}
