// Package fallback is a sink around several, its tiers. Entries that a tier does not take
// go to the next one, and what the last tier rejects is a dead letter:
//
//   - An entry that the tier rejects goes on at once.
//   - An entry that the tier fails to take is tried again, as always. It goes on when
//     this attempt may be its last: the longest back-off, and a quarter of max_age for
//     the next Write, would leave it no life.
//   - A tier that has answered nothing for an eighth of max_age is down. Its entries go
//     on at once; one Write a second tries it first, until it answers.
//
// Delivered means that one of the tiers has the entry. A tier whose Write timed out may
// have it, too. Under at-most-once nothing goes on that was in a Write with an unknown
// outcome.
package fallback

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
)

// A Tier is a sink, first choice first.
type Tier struct {
	Sink     sink.Sink
	Label    string             // the sink's URL without its secrets, for logs
	Accepted prometheus.Counter // counts the entries that it took; nil: not counted
	Down     prometheus.Gauge   // 1 while it is down; nil: not shown
}

// Config is what the drain does with the namespace.
type Config struct {
	MaxAge                  time.Duration // at which an entry expires
	BackoffBase, BackoffMax time.Duration // bound the wait after attempt n: min(max, base·2^(n−1))
	AtMostOnce              bool
}

// Sink writes to the first tier that takes an entry.
type Sink struct {
	cfg   Config
	tiers []*tier
}

// New makes a sink of two tiers or more.
func New(cfg Config, tiers []Tier, log *zap.Logger) *Sink {
	s := &Sink{cfg: cfg}
	for i, t := range tiers {
		grace := cfg.MaxAge / 8
		if i == len(tiers)-1 {
			grace = math.MaxInt64 // there is none to go to
		}
		s.tiers = append(s.tiers, newTier(t, grace,
			log.With(zap.Int("tier", i+1), zap.String("tier_sink", t.Label))))
	}
	return s
}

// Open opens all tiers, so that a wrong one shows at the start. It succeeds when one
// opens: the others are opened when they are needed.
func (s *Sink) Open(ctx context.Context) error {
	var errs []error
	for i, t := range s.tiers {
		share, cancel := shareOf(ctx, i < len(s.tiers)-1)
		err := t.reopen(share)
		cancel()
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == len(s.tiers) {
		return errors.Join(errs...)
	}
	return nil
}

// Close closes all tiers.
func (s *Sink) Close(ctx context.Context) error {
	var errs []error
	for _, t := range s.tiers {
		errs = append(errs, t.close(ctx))
	}
	return errors.Join(errs...)
}

// Caps are those of the first tier. The others get smaller Writes where they want them.
func (s *Sink) Caps() sink.Caps { return s.tiers[0].caps }

// Write writes to the first tier, and what that does not take to the next ones. Entries that
// the first tier rejects without naming one are Permanent, for the drain to bisect; what a
// later tier rejects so is bisected here. Its errors are never ErrNotConnected.
func (s *Sink) Write(ctx context.Context, batches []*sink.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return connected(s.write(ctx, 0, batches))
}

// write writes to tier k and those behind it.
func (s *Sink) write(ctx context.Context, k int, batches []*sink.Batch) error {
	t := s.tiers[k]
	if k == len(s.tiers)-1 {
		return t.write(ctx, batches)
	}
	err := s.try(ctx, t, batches)
	if err == nil || s.bisects(err, batches) {
		return err
	}
	sent, now := !sink.IsUnsent(err), time.Now()
	err = counted(err)
	results := spread(err, batches)
	rest, from := pick(batches, func(i, j int) bool {
		err := results[i][j]
		switch {
		case err == nil:
			return false
		case sink.IsPermanent(err):
			return true
		case s.cfg.AtMostOnce:
			return !sent
		}
		return t.isDown() || s.ends(batches[i], j, now, err)
	})
	if len(rest) == 0 {
		return err
	}
	for n, list := range s.handOn(ctx, k+1, rest) {
		for m, next := range list {
			i, j := from[n].batch, from[n].entries[m]
			results[i][j] = both(results[i][j], next, s.ends(batches[i], j, now, next))
			if !sent && sink.IsUnsent(next) {
				results[i][j] = sink.Unsent(results[i][j])
			}
		}
	}
	return gather(results)
}

// bisects reports whether the caller of write bisects a rejected Write: the drain, or
// handOn. Under at-most-once nobody does.
func (s *Sink) bisects(err error, batches []*sink.Batch) bool {
	return rejectsUnnamed(err) && entriesOf(batches) > 1 && !s.cfg.AtMostOnce
}

// try writes to a tier that others follow. It leaves them half of the time where the
// tier is down, or where entries would not have another attempt if it took all of it.
// Under at-most-once nothing follows a Write that took its time.
func (s *Sink) try(ctx context.Context, t *tier, batches []*sink.Batch) error {
	end, bounded := ctx.Deadline()
	share, cancel := shareOf(ctx, !s.cfg.AtMostOnce && (t.isDown() || bounded && s.anyEnds(batches, end)))
	defer cancel()
	return t.write(share, batches)
}

// handOn writes to tier k and those behind it, in Writes as small as the tier wants them,
// and bisects what it rejects without naming entries.
func (s *Sink) handOn(ctx context.Context, k int, batches []*sink.Batch) outcomes {
	results := make(outcomes, 0, len(batches))
	for len(batches) > 0 {
		n := s.tiers[k].takes(batches)
		results = append(results, s.handOnWrite(ctx, k, batches[:n])...)
		batches = batches[n:]
	}
	return results
}

// handOnWrite is handOn for batches that the tier takes in one Write.
func (s *Sink) handOnWrite(ctx context.Context, k int, batches []*sink.Batch) outcomes {
	err := s.write(ctx, k, batches)
	if errors.Is(err, sink.ErrNotConnected) && !s.cfg.AtMostOnce {
		// A tier that was not used for long finds its connection broken, and these
		// entries may have no other attempt.
		sent := !sink.IsUnsent(err)
		if err = s.write(ctx, k, batches); sent {
			err = counted(err)
		}
	}
	if !s.bisects(err, batches) {
		return spread(err, batches)
	}
	if half := len(batches) / 2; half > 0 {
		return seen(append(s.handOnWrite(ctx, k, batches[:half]), s.handOnWrite(ctx, k, batches[half:])...))
	}
	var results []error
	half := len(batches[0].Entries) / 2
	for _, first := range []bool{true, false} {
		part, _ := pick(batches, func(_, j int) bool { return j < half == first })
		results = append(results, s.handOnWrite(ctx, k, part)[0]...)
	}
	return seen(outcomes{results})
}

// ends reports whether an entry that failed with err at the given time may have had its
// last attempt.
func (s *Sink) ends(b *sink.Batch, entry int, now time.Time, err error) bool {
	if b.Jobs != nil && b.Jobs[entry].Last() {
		return true
	}
	wait := s.cfg.BackoffMax
	if doublings := b.Attempt - 1; doublings < 30 {
		wait = min(wait, s.cfg.BackoffBase<<max(doublings, 0))
	}
	if after, ok := sink.ThrottledFor(err); ok {
		wait = max(wait, after)
	}
	return staleAt(b, entry).Sub(now) < wait+s.cfg.MaxAge/4
}

func (s *Sink) anyEnds(batches []*sink.Batch, now time.Time) bool {
	for _, b := range batches {
		for j := range b.Entries {
			if s.ends(b, j, now, nil) {
				return true
			}
		}
	}
	return false
}

// endless is the end of a job that never expires.
var endless = time.Unix(1<<40, 0)

// staleAt is when an entry goes stale, or a job expires. The deadline of a batch is that of
// its youngest entry.
func staleAt(b *sink.Batch, entry int) time.Time {
	if b.Jobs != nil {
		if at := b.Jobs[entry].Expires; !at.IsZero() {
			return at
		}
		return endless
	}
	return b.Deadline.Add(-time.Duration(youngest(b)-b.Entries[entry].Occurred) * time.Millisecond)
}

// youngest is the latest time of a batch's entries.
func youngest(b *sink.Batch) int64 {
	latest := b.Entries[0].Occurred
	for i := range b.Entries {
		latest = max(latest, b.Entries[i].Occurred)
	}
	return latest
}

// shareOf is ctx with half of the time that is left, or all of it.
func shareOf(ctx context.Context, half bool) (context.Context, context.CancelFunc) {
	end, bounded := ctx.Deadline()
	if !half || !bounded {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}
