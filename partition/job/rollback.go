package job

import (
	"context"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/backend"
)

// A rollbackDetector remembers, outside Redis, what the ledger of a shard must
// hold at least. A store that loses its newest writes (a restart without
// persistence, a failover to a replica that lags, FLUSHALL) loses jobs and
// ledger together, so what is left in Redis still adds up.
//
// floor is a lower bound of the ledger's published: what the last round read, plus
// what calls that were sent after that round stored. A call that is under way
// during a round may or may not be in what the round reads, so it is left out.
// The bound stays true, and no round reports a rollback that did not happen.
type rollbackDetector struct {
	mu    sync.Mutex
	round uint64 // the round that base comes from
	base  int64  // what floor was right after that round
	floor int64
	epoch string // the ledger's random name; empty while it is not known
}

// add counts n jobs that a call stored. round is the latest round before the
// call was sent.
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

// compare takes what a round read. bound is the lower bound from before the round
// was sent. It returns how many published jobs are missing from the ledger, at
// least. Where the epoch is another, the ledger began anew and holds nothing of
// base. A ledger with a format but without an epoch is not new: it was rolled back
// to the time before it had an epoch.
func (d *rollbackDetector) compare(round uint64, bound, published int64, epoch string, formatted bool) (missing int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	missing = max(0, bound-published)
	if d.epoch != "" && epoch != d.epoch && (epoch != "" || !formatted) {
		missing = max(missing, d.base)
	}
	if missing > 0 {
		d.floor = published
	}
	d.floor = max(d.floor, published)
	d.round, d.base, d.epoch = round, d.floor, epoch
	return missing
}

// skip starts a round that could not read the ledger.
func (d *rollbackDetector) skip(round uint64) {
	d.mu.Lock()
	d.round = round
	d.mu.Unlock()
}

// checkRollback reads every ledger, in one pipeline per server, and counts what
// was rolled back. It skips shards that are unreachable; a round follows as soon
// as they are back. It does not compare the server's run_id: that changes with a
// failover that lost nothing, and does not change with FLUSHALL.
func (s *Store) checkRollback(ctx context.Context) {
	type reading struct {
		ns    *Namespace
		shard int
		bound int64
		cmd   *redis.SliceCmd
	}
	var all []reading
	var unreachable []*rollbackDetector
	ctx, cancel := context.WithTimeout(ctx, backend.ProbeTimeout)
	defer cancel()
	pipes := map[redis.Cmdable]redis.Pipeliner{}
	for _, ns := range s.Namespaces() {
		for i := range ns.shards {
			sh := ns.shards[i]
			if !sh.breaker.Allow() {
				unreachable = append(unreachable, &sh.rollback)
				continue
			}
			server := s.backend.ClientFor(ctx, sh.ledger)
			pipe := pipes[server]
			if pipe == nil {
				pipe = server.Pipeline()
				pipes[server] = pipe
			}
			all = append(all, reading{ns, i, sh.rollback.lowerBound(), pipe.HMGet(ctx, sh.ledger, "published", "epoch", "format")})
		}
	}
	var running sync.WaitGroup
	for _, pipe := range pipes {
		running.Go(func() { _, _ = pipe.Exec(ctx) }) // each command has its own error
	}
	running.Wait()
	// Calls that are sent from here on count on top of what was read.
	round := s.rounds.Add(1)
	for _, d := range unreachable {
		d.skip(round)
	}
	for _, r := range all {
		d := &r.ns.shards[r.shard].rollback
		fields := r.cmd.Val()
		if err := backend.Classify(r.cmd.Err()); err != nil || len(fields) == 3 {
			r.ns.shards[r.shard].breaker.Done(err)
		}
		if r.cmd.Err() != nil || len(fields) != 3 {
			d.skip(round)
			continue
		}
		text, _ := fields[0].(string)
		published, _ := strconv.ParseInt(text, 10, 64) // absent: 0
		epoch, _ := fields[1].(string)
		if missing := d.compare(round, r.bound, published, epoch, fields[2] != nil); missing > 0 {
			s.metrics.rolledBack.Add(float64(missing))
			s.log.Error("the store was rolled back: published jobs are gone, and so is the ledger that counted them",
				zap.String("namespace", r.ns.Name), zap.Int("shard", r.shard),
				zap.Int64("jobs", missing), zap.Int64("published_before", r.bound), zap.Int64("published_now", published))
		}
	}
}
