package job

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition/backend"
)

// A Lane is one caller of Run, and its memory. One goroutine at a time uses it. It
// remembers the claims with an unknown outcome, and takes them back before its next claim
// of the same shard.
type Lane struct {
	name    string // of its key in each shard; no other lane has it
	claims  uint64 // so far
	unknown map[*shard]unknownClaim
	run     run

	// Other is what a store of another kind remembers: see partition/php.
	Other any
	// Unknown is whether such a store has claims to take back whose error no request has, for it has
	// jobs of another queue.
	Unknown bool
}

// unknownClaim is a claim whose answer was lost.
type unknownClaim struct {
	token  string
	queues []string
}

// NewLane makes a lane.
func (s *Store) NewLane() *Lane {
	return &Lane{name: rand.Text(), unknown: map[*shard]unknownClaim{}}
}

// token is a new name for a call of claim.
func (l *Lane) token() string {
	l.claims++
	return l.name + "." + strconv.FormatUint(l.claims, 10)
}

// Revert takes back what the lane's claims with an unknown outcome handed out. Run does
// so before the next claim of the shard; a lane that claims no more calls it once at its
// end. After an error the leases lapse, unless Revert is called again.
func (s *Store) Revert(ctx context.Context, l *Lane) error {
	shards := make([]*shard, 0, len(l.unknown))
	for sh := range l.unknown {
		shards = append(shards, sh)
	}
	return s.revert(ctx, l, shards)
}

// revert takes back the unknown claims of some shards. Those that fail stay unknown.
func (s *Store) revert(ctx context.Context, l *Lane, shards []*shard) error {
	var calls []*backend.Call
	var reverted []*shard
	for _, sh := range shards {
		claim, ok := l.unknown[sh]
		if !ok {
			continue
		}
		keys := []string{sh.attempts, sh.lease, sh.Prefix + "out:" + l.name}
		argv := []any{claim.token, sh.channel, s.wake}
		for _, queue := range claim.queues {
			keys = append(keys, sh.ready(queue))
			argv = append(argv, queue)
		}
		call := backend.NewCall(luajob.Revert, sh.Breaker, keys, argv...)
		call.Spare = &sh.ends
		calls = append(calls, call)
		reverted = append(reverted, sh)
	}
	if len(calls) == 0 {
		return nil
	}
	s.backend.Run(ctx, s.backend.Out, calls)
	var errs []error
	for i, c := range calls {
		switch {
		case c.Err == nil:
			s.metrics.reverted.Add(float64(c.Rest.Int()))
			delete(l.unknown, reverted[i])
		case errors.Is(c.Err, backend.ErrBroken):
			// It would fail for ever. The leases lapse.
			delete(l.unknown, reverted[i])
			fallthrough
		default:
			errs = append(errs, c.Err)
		}
	}
	return errors.Join(errs...)
}
