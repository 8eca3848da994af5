package drain

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition"
)

const (
	// minCommitPause and maxCommitPause bound the wait before a commit or a release
	// with an unknown outcome, or that did not run, is sent again.
	minCommitPause, maxCommitPause = 10 * time.Millisecond, 500 * time.Millisecond
	// stopRetries is how often a commit or a release is sent again once Stop was
	// called: about a second, for a store that is away must not hold up a shutdown.
	stopRetries = 6
	// maxMoves bounds how often the store may say that the range starts elsewhere,
	// before that is no answer any more.
	maxMoves = 8
)

// A settlement is how far the settling of a lease has come. At most one commit or
// release is on its way, beside the next Write.
type settlement struct {
	sent      *settleRequest
	unsure    bool  // a commit or release may have run with an unknown outcome
	ended     bool  // the range is settled to its end, or the rest given back
	lost      bool  // lease lost; stop
	rejected  error // the store will not settle this partition
	moves     int   // how often the store said that the range starts elsewhere
	unwritten int   // at-most-once: entries of the commit under way that are not written yet
}

// commitBehind sends a commit of what is done, unless one is still on its way. What
// gathers meanwhile goes out with the next.
func (r *run) commitBehind() {
	if r.leaseLost() || r.sent != nil {
		return
	}
	if c := r.commit(); c != nil {
		r.sent = r.settler().submit(&settleRequest{commit: c})
	}
}

// leaseLost takes the result of the commit on its way, if it has come, and reports
// whether the lease is lost.
func (r *run) leaseLost() bool {
	if r.sent != nil {
		select {
		case <-r.sent.done:
			r.applyResult(r.sent)
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
		r.applyResult(r.sent)
	}
	for failures := 0; !r.lost && !r.ended; {
		s := &settleRequest{commit: r.commit()}
		if s.commit == nil {
			s.release = r.releaseRest()
		}
		if r.send(s) {
			continue
		}
		if failures++; !r.retry(failures) {
			break
		}
	}
	if !r.ended && !r.lost {
		r.lapse()
	}
	return r.rejected
}

// send waits for the result of a commit or a release and applies it.
func (r *run) send(s *settleRequest) bool {
	began := time.Now()
	<-r.settler().submit(s).done
	if s.err() == nil && r.atMostOnce() {
		r.commits.Took(time.Since(began), false)
	}
	return r.applyResult(s)
}

// settler is that of the lease's zone.
func (r *run) settler() *settler {
	return r.settlers[r.lease.Zone()]
}

// retry waits before a commit or a release is sent again. It is false where that
// would be in vain: the lease is lost or over, or Stop waits.
func (r *run) retry(failures int) bool {
	wait := minCommitPause + guard.Backoff(minCommitPause, maxCommitPause, failures, rand.Float64())
	stopping := r.claiming.Err() != nil && failures > stopRetries
	if r.lost || stopping || time.Until(r.lease.Until) < wait || !guard.Sleep(r.settling, wait) {
		return false
	}
	r.metrics.retries.Inc()
	return true
}

// releaseRest gives back what is not done. Where that is nothing, because something
// other than Spillway removed the last entries, it frees those behind the range.
func (r *run) releaseRest() *partition.Release {
	rel := r.release()
	rel.Delay = max(0, time.Until(r.retryAt))
	if r.expiring.end > r.settled {
		rel.Delay = max(rel.Delay, time.Until(r.expiring.stale))
	}
	rel.Attempt = r.lease.Attempt
	if r.presented <= r.settled {
		rel.Attempt-- // this presentation did not take place
	}
	return rel
}

// applyResult enters the result of a commit or a release, and reports whether the
// next may follow at once.
func (r *run) applyResult(s *settleRequest) bool {
	var elsewhere *partition.RangeError
	err := s.err()
	switch {
	case err == nil:
		unsure := r.unsure
		r.unsure = false
		if s.release != nil {
			r.ended = true
			return true
		}
		// Without an unknown outcome no commit of ours can have run before.
		r.settledTo(int(s.commit.Hi-r.lease.From), s.commit.AlreadyApplied && !unsure)
		if s.commit.AlreadyApplied {
			r.ended = false // a commit that had ended the lease would be gone: release it
		}
		return true
	case errors.Is(err, partition.ErrGone):
		r.gone()
		return false
	case errors.As(err, &elsewhere):
		return r.moveTo(elsewhere.From)
	case errors.Is(err, partition.ErrUnknown):
		r.unsure = true
		return false
	case errors.Is(err, partition.ErrUnavailable):
		return false
	case !errors.Is(err, errSettlerStopped):
		r.rejected = err
	}
	r.lapse()
	return false
}

// settledTo counts the entries before at as settled, or as lost. The last commit ends
// the lease.
func (r *run) settledTo(at int, lost bool) {
	if lost {
		r.metrics.entries.WithLabelValues(outcomeLost).Add(float64(at - r.settled))
		r.recordLost(at - r.settled)
	} else {
		r.countSettled(r.settled, at)
	}
	r.settled = at
	r.ended = at == len(r.classes)
}

func (r *run) countSettled(lo, hi int) {
	n := r.count(lo, hi)
	n[delivered] -= min(n[delivered], r.unwritten) // their Write counts them
	r.metrics.settled(n)
	r.recordSettled(lo, hi, n)
}

// moveTo takes up the range where the store says that it starts.
func (r *run) moveTo(seq int64) bool {
	before, done := r.settled, r.progress()
	if r.moves++; r.moves > maxMoves || !r.startAt(seq) {
		r.rejected = &partition.RangeError{From: seq}
		r.lapse()
		return false
	}
	// When it starts earlier than we thought, the store lost its newest writes, ours
	// among them, and is told again.
	if now := r.settled; now > before {
		gone := before
		if r.unsure { // our own commit ran
			gone = min(now, done)
			r.countSettled(before, gone)
		}
		r.metrics.entries.WithLabelValues(outcomeLost).Add(float64(now - gone))
		r.recordLost(now - gone)
	}
	r.unsure = false
	return true
}

// gone ends a lease that another drainer took, or whose partition died. After an
// unknown outcome it most likely means that our own commit or release ran.
func (r *run) gone() {
	r.lost = true
	if !r.unsure {
		r.metrics.fenced.Inc()
	}
	r.countUnconfirmed()
}

// lapse gives a lease up to its deadline: the store replays what it had not
// settled.
func (r *run) lapse() {
	r.lost = true
	r.metrics.lapsed.Inc()
	r.countUnconfirmed()
}

func (r *run) countUnconfirmed() {
	if n := r.progress() - r.settled; n > 0 {
		r.metrics.entries.WithLabelValues(outcomeUnconfirmed).Add(float64(n))
	}
}
