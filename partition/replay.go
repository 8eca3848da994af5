package partition

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"
)

// replayWindow is how long a replay that is repeated stores nothing: longer than an operator
// waits before trying again what had an unknown outcome.
const replayWindow = 24 * time.Hour

// replayTries is how often Replay sends a produce whose outcome is unknown.
const replayTries = 3

// ErrUnreadable: the letter is not one that Spillway wrote, so there is nothing to replay.
var ErrUnreadable = errors.New("not a dead letter of Spillway")

// ReplayOutcome is what became of one letter of a Replay.
type ReplayOutcome struct {
	ID string
	// Err is nil where the entry is in its partition and the letter is gone. Otherwise the
	// letter is kept, or may be kept; it is safe to replay it again for 24h. It is
	// ErrUnreadable, ErrTooManyPartitions, ErrTooManyKeys, the error of ctx, or Is one of the
	// store's errors.
	Err error
	// Repeated: an earlier replay of the same letter had stored the entry already.
	Repeated bool
}

// Replay produces the entries of dead letters again, in the order given, and discards the
// letters. It returns one outcome for each, in the same order. A replayed entry counts as
// accepted again, once: also when several replay it at once, or again after a lost reply,
// within 24h. Ledger.Dead stays as it is. The entry gets a new sequence and the time of
// now, because with its own it would be stale at once; it keeps its id. In a full partition
// it evicts the oldest entry, as every new one does. When ctx ends, the rest is left alone.
func (verbs) Replay(ctx context.Context, ns *Namespace, letters []Letter) []ReplayOutcome {
	s := ns.store
	outcomes := make([]ReplayOutcome, len(letters))
	for done := 0; done < len(letters); {
		some := sameShard(letters[done:], maxCallLeases)
		s.replay(ctx, ns, some, outcomes[done:])
		done += len(some)
	}
	return outcomes
}

// replay replays letters of one shard.
func (s *Store) replay(ctx context.Context, ns *Namespace, letters []Letter,
	outcomes []ReplayOutcome) {
	groups := make([]*Group, len(letters))
	var waiting []*Group
	now, err := s.backend.KnownTime(ctx)
	for i, l := range letters {
		outcomes[i].ID = l.ID
		groups[i] = &Group{Namespace: ns, Partition: l.Partition, Err: err}
		if l.Reason == ReasonUnreadable {
			groups[i].Err = ErrUnreadable
		} else if err == nil {
			sum := sha256.Sum256(l.Raw)
			groups[i].IdempotencyKey = "\x00replay " + hex.EncodeToString(sum[:]) // no client can send it
			groups[i].Entries = [][]byte{AppendEntry(nil, now, []byte(l.EntryID), l.Payload)}
			waiting = append(waiting, groups[i])
		}
	}
	s.produceUntilKnown(ctx, waiting)
	var stored []Letter
	for i, g := range groups {
		outcomes[i].Err, outcomes[i].Repeated = g.Err, g.Repeated && g.Err == nil
		if g.Err == nil {
			stored = append(stored, letters[i])
		}
	}
	// Not cut off by ctx, or the letters of entries that are stored would stay.
	if _, err := s.Discard(context.WithoutCancel(ctx), ns, stored); err != nil {
		for i, g := range groups {
			if g.Err == nil {
				outcomes[i].Err = fmt.Errorf("stored, but the letter may be kept: %w", err)
			}
		}
	}
}

// produceUntilKnown produces groups that have idempotency keys, and those with an unknown outcome
// again.
func (s *Store) produceUntilKnown(ctx context.Context, groups []*Group) {
	for try := 1; len(groups) > 0; try++ {
		if err := s.pace.Do(ctx, func(ctx context.Context) {
			s.produce(ctx, groups,
				replayWindow)
		}); err != nil {
			for _, g := range groups {
				g.Err = cmp.Or(g.Err, err)
			}
			return
		}
		if try == replayTries {
			return
		}
		groups = slices.DeleteFunc(groups, func(g *Group) bool { return !errors.Is(g.Err, ErrUnknown) })
	}
}
