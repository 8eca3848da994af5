package partition

import (
	"context"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// A witness remembers from outside what a shard's ledger must at least say,
// for a store that loses its newest writes (a restart without persistence, a
// failover to a replica that lags, FLUSHALL) loses data and account together
// and adds up as before.
//
// floor is a lower bound of the ledger's accepted: what a round read, and what
// this process was told is stored by calls that were sent after that. A call
// under way during a round may be in what was read or not, so it is left out:
// the bound stays true, and no round raises a false alarm.
type rollbackDetector struct {
	mu    sync.Mutex
	round uint64
	base  int64 // floor as it was then
	floor int64
	epoch string // the ledger's random name; empty while it is not known
}

// stored adds n entries that were acknowledged by a call sent under a round.
func (d *rollbackDetector) add(round uint64, n int) {
	d.mu.Lock()
	if d.round == round {
		d.floor += int64(n)
	}
	d.mu.Unlock()
}

func (d *rollbackDetector) lowerBound() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.floor
}

// read compares what a round found with least, the floor before it was sent, and
// returns how many accepted entries the ledger no longer knows of, at least. A
// ledger of another epoch begins anew: then nothing of the base is in it. One
// that has a format and no epoch is older than its epoch, which was rolled back.
func (d *rollbackDetector) compare(round uint64, least, accepted int64, epoch string, formatted bool) (gone int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	gone = max(0, least-accepted)
	if d.epoch != "" && epoch != d.epoch && (epoch != "" || !formatted) {
		gone = max(gone, d.base)
	}
	if gone > 0 {
		d.floor = accepted
	}
	d.floor = max(d.floor, accepted)
	d.round, d.base, d.epoch = round, d.floor, epoch
	return gone
}

// unread starts a round's bookkeeping where nothing could be read.
func (d *rollbackDetector) skip(round uint64) {
	d.mu.Lock()
	d.round = round
	d.mu.Unlock()
}

// round reads every ledger, in one pipeline a server, and counts what was rolled back. It
// leaves out shards that cannot be reached: a round follows as soon as they can.
// It asks the ledgers themselves, not for the server's run_id: a failover that
// lost nothing is no alarm, and FLUSHALL, which changes no run_id, is one.
func (s *Store) checkRollback(ctx context.Context) {
	type reading struct {
		ns    *Namespace
		shard int
		least int64
		cmd   *redis.SliceCmd
	}
	var all []reading
	var absent []*rollbackDetector
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	pipes := map[redis.Cmdable]redis.Pipeliner{}
	for _, ns := range s.Namespaces() {
		for i := range ns.shards {
			sh := &ns.shards[i]
			if !sh.breaker.allow() {
				absent = append(absent, &sh.rollback)
				continue
			}
			server := s.backend.clientFor(ctx, sh.ledger)
			pipe := pipes[server]
			if pipe == nil {
				pipe = server.Pipeline()
				pipes[server] = pipe
			}
			all = append(all, reading{ns, i, sh.rollback.lowerBound(), pipe.HMGet(ctx, sh.ledger, "accepted", "epoch", "format")})
		}
	}
	var running sync.WaitGroup
	for _, pipe := range pipes {
		running.Go(func() { _, _ = pipe.Exec(ctx) }) // each command tells
	}
	running.Wait()
	// From here on calls count on top of what was read.
	round := s.ledgerRounds.Add(1)
	for _, d := range absent {
		d.skip(round)
	}
	for _, r := range all {
		d := &r.ns.shards[r.shard].rollback
		fields := r.cmd.Val()
		if err := classify(r.cmd.Err()); err != nil || len(fields) == 3 {
			r.ns.shards[r.shard].breaker.done(err)
		}
		if r.cmd.Err() != nil || len(fields) != 3 {
			d.skip(round)
			continue
		}
		text, _ := fields[0].(string)
		accepted, _ := strconv.ParseInt(text, 10, 64) // not there: 0
		epoch, _ := fields[1].(string)
		if gone := d.compare(round, r.least, accepted, epoch, fields[2] != nil); gone > 0 {
			s.metrics.rolledBack.Add(float64(gone))
			s.log.Error("the store was rolled back: accepted entries are gone, and the ledger with them",
				zap.String("namespace", r.ns.Name), zap.Int("shard", r.shard),
				zap.Int64("entries", gone), zap.Int64("accepted_before", r.least), zap.Int64("accepted_now", accepted))
		}
	}
}
