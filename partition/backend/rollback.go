package backend

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A RollbackDetector remembers, outside Redis, what the ledger of a shard must
// hold at least. A store that loses its newest writes (a restart without
// persistence, a failover to a replica that lags, FLUSHALL) loses data and
// ledger together, so what is left in Redis still adds up.
//
// floor is a lower bound of the ledger's total of what was stored: what the last
// round read, plus what calls that were sent after that round stored. A call that is
// under way during a round may or may not be in what the round reads, so it is left
// out. The bound stays true, and no round reports a rollback that did not happen.
type RollbackDetector struct {
	mu    sync.Mutex
	round uint64 // the round that base comes from
	base  int64  // what floor was right after that round
	floor int64
	epoch string // the ledger's random name; empty while it is not known
}

// Add counts n entries or jobs that a call stored. round is the latest round before
// the call was sent.
func (d *RollbackDetector) Add(round uint64, n int) {
	d.mu.Lock()
	if d.round == round {
		d.floor += int64(n)
	}
	d.mu.Unlock()
}

func (d *RollbackDetector) lowerBound() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.floor
}

// compare takes what a round read. bound is the lower bound from before the round
// was sent. It returns how many are missing from the ledger, at least. Where the
// epoch is another, the ledger began anew and holds nothing of base. A ledger with a
// format but without an epoch is not new: it was rolled back to the time before it
// had an epoch.
func (d *RollbackDetector) compare(round uint64, bound, total int64, epoch string, formatted bool) (missing int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	missing = max(0, bound-total)
	if d.epoch != "" && epoch != d.epoch && (epoch != "" || !formatted) {
		missing = max(missing, d.base)
	}
	if missing > 0 {
		d.floor = total
	}
	d.floor = max(d.floor, total)
	d.round, d.base, d.epoch = round, d.floor, epoch
	return missing
}

// skip starts a round that could not read the ledger.
func (d *RollbackDetector) skip(round uint64) {
	d.mu.Lock()
	d.round = round
	d.mu.Unlock()
}

// A WatchedLedger is the ledger of a shard, and what is known of it.
type WatchedLedger struct {
	Key      string
	Breaker  *Breaker
	Detector *RollbackDetector
}

// A Rollback is what a ledger lacks: its total was Before at least, and is Now.
type Rollback struct{ Missing, Before, Now int64 }

// CheckRollback reads the field total of each ledger, in one pipeline per server, and
// calls found for each that was rolled back. It skips shards that are unreachable; a
// round follows as soon as they are back. rounds counts the calls: RollbackDetector.Add
// wants the number from before the call that stored was sent. It does not compare the
// server's run_id: that changes with a failover that lost nothing, and does not change
// with FLUSHALL.
func (b *Backend) CheckRollback(ctx context.Context, rounds *atomic.Uint64, total string, ledgers []WatchedLedger, found func(i int, r Rollback)) {
	type reading struct {
		ledger int
		bound  int64
		cmd    *redis.SliceCmd
	}
	var all []reading
	var unreachable []*RollbackDetector
	ctx, cancel := context.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	pipes := map[redis.Cmdable]redis.Pipeliner{}
	for i, l := range ledgers {
		if !l.Breaker.Allow() {
			unreachable = append(unreachable, l.Detector)
			continue
		}
		server := b.ClientFor(ctx, l.Key)
		pipe := pipes[server]
		if pipe == nil {
			pipe = server.Pipeline()
			pipes[server] = pipe
		}
		all = append(all, reading{i, l.Detector.lowerBound(), pipe.HMGet(ctx, l.Key, total, "epoch", "format")})
	}
	var running sync.WaitGroup
	for _, pipe := range pipes {
		running.Go(func() { _, _ = pipe.Exec(ctx) }) // each command has its own error
	}
	running.Wait()
	// Calls that are sent from here on count on top of what was read.
	round := rounds.Add(1)
	for _, d := range unreachable {
		d.skip(round)
	}
	for _, r := range all {
		l := ledgers[r.ledger]
		fields := r.cmd.Val()
		if err := Classify(r.cmd.Err()); err != nil || len(fields) == 3 {
			l.Breaker.Done(err)
		}
		if r.cmd.Err() != nil || len(fields) != 3 {
			l.Detector.skip(round)
			continue
		}
		text, _ := fields[0].(string)
		now, _ := strconv.ParseInt(text, 10, 64) // absent: 0
		epoch, _ := fields[1].(string)
		if missing := l.Detector.compare(round, r.bound, now, epoch, fields[2] != nil); missing > 0 {
			found(r.ledger, Rollback{missing, r.bound, now})
		}
	}
}
