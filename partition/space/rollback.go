package space

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/backend"
)

// A rollbackDetector remembers, outside Redis, what the ledger of a shard must
// hold at least. A store that loses its newest writes (a restart without
// persistence, a failover to a replica that lags, FLUSHALL) loses data and
// ledger together, so what is left in Redis still adds up.
//
// floor is a lower bound of the ledger's total of what was stored: what the last
// round read, plus what calls that were sent after that round stored. A call that is
// under way during a round may or may not be in what the round reads, so it is left
// out. The bound stays true, and no round reports a rollback that did not happen.
type rollbackDetector struct {
	mu    sync.Mutex
	round uint64 // the round that base comes from
	base  int64  // what floor was right after that round
	floor int64
	epoch string // the ledger's random name; empty while it is not known
	read  time.Time
}

// add counts n entries or jobs that a call stored. round is the latest round before
// the call was sent.
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
// was sent. It returns how many are missing from the ledger, at least. Where the
// epoch is another, the ledger began anew and holds nothing of base. A ledger with a
// format but without an epoch is not new: it was rolled back to the time before it
// had an epoch.
func (d *rollbackDetector) compare(round uint64, bound, total int64, epoch string,
	formatted bool) (missing int64) {
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
	d.round = round
	d.base = d.floor
	d.epoch = epoch
	d.read = time.Now()
	return missing
}

// since is how long ago the ledger was read.
func (d *rollbackDetector) since() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.read)
}

// skip starts a round that does not read the ledger. What is stored from then on counts on top
// of what was read before.
func (d *rollbackDetector) skip(round uint64) {
	d.mu.Lock()
	d.round = round
	d.mu.Unlock()
}

// watchEvery is how often the ledgers are read.
const watchEvery = time.Second

// Watch looks for rollbacks every second, and when a connection was made or a shard is reachable
// again: the server that answers then may be another than before, or hold less. Every second
// alone it looks at the shards that this process does not leave to others: see Home.Rest, for
// which it says meanwhile that this process is alive. It ends with ctx. homes are those to look at
// now.
func (s *Space) Watch(ctx context.Context, homes func() []*Home) {
	var entered sync.WaitGroup
	defer entered.Wait()
	entered.Go(func() { s.keepEntered(ctx, homes) })
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	connected := s.backend.Connected()
	var checked time.Time
	for {
		ranked := false
		select {
		case <-ctx.Done():
			return
		case <-connected:
			if time.Since(checked) < watchEvery/10 {
				continue
			}
		case <-tick.C:
			ranked = true
		}
		s.checkRollback(ctx, homes(), ranked)
		checked = time.Now()
	}
}

// CheckRollback looks whether a ledger lacks what it had, and counts what was lost with it. It
// reads the ledgers in one pipeline per server, and not those of a replica. It skips shards that
// are unreachable; a look follows as soon as they are back. It does not compare the server's
// run_id: that changes with a failover that lost nothing, and does not change with FLUSHALL.
func (s *Space) CheckRollback(ctx context.Context, homes []*Home) { s.checkRollback(ctx, homes, false) }

// checkRollback is CheckRollback; where ranked is true, shards rest that are left to others.
func (s *Space) checkRollback(ctx context.Context, homes []*Home, ranked bool) {
	type reading struct {
		home  *Home
		sh    *Shard
		bound int64
		cmd   *redis.SliceCmd
		probe *redis.Cmd // of the same connection
	}
	var all []reading
	var unread []*Shard
	ctx, cancel := s.backend.Probing(ctx)
	defer cancel()
	pipes := backend.Pipes{}
	probes := map[redis.Pipeliner]*redis.Cmd{}
	for _, h := range homes {
		for _, sh := range h.Shards() {
			if !sh.Breaker.Allow() || ranked && sh.rollback.since() < h.Rest(sh.Number) {
				unread = append(unread, sh)
				continue
			}
			pipe := pipes.To(s.backend.ClientFor(ctx, sh.Ledger))
			if probes[pipe] == nil {
				probes[pipe] = pipe.Eval(ctx, backend.WriteProbe, nil)
			}
			all = append(all, reading{h, sh, sh.rollback.lowerBound(),
				pipe.HMGet(ctx, sh.Ledger, s.Kind.Total, "epoch", "format", "closed"), probes[pipe]})
		}
	}
	_ = pipes.Exec(ctx) // each command has its own error
	// Calls that are sent from here on count on top of what was read.
	round := s.rounds.Add(1)
	for _, sh := range unread {
		sh.rollback.skip(round)
	}
	for _, r := range all {
		fields := r.cmd.Val()
		if err := backend.Classify(r.cmd.Err()); err != nil || len(fields) == 4 {
			r.sh.Breaker.Done(err)
		}
		// A replica may lack what its primary has. closed: its namespace is being deleted.
		if s.backend.LeaveReplica(r.probe.Err()) || r.cmd.Err() != nil || len(fields) != 4 || fields[3] != nil {
			r.sh.rollback.skip(round)
			continue
		}
		text, _ := fields[0].(string)
		now, _ := strconv.ParseInt(text, 10, 64) // absent: 0
		epoch, _ := fields[1].(string)
		if missing := r.sh.rollback.compare(round, r.bound, now, epoch, fields[2] != nil); missing > 0 {
			s.RolledBack.Add(float64(missing))
			s.Log.Error("the store was rolled back: "+s.Kind.Total+" "+s.Kind.Unit+" are gone, and so is the ledger that counted them",
				zap.String("namespace", r.home.Name), zap.Int("shard",
					r.sh.Number), zap.Int64(s.Kind.Unit, missing),
				zap.Int64(s.Kind.Total+"_before", r.bound), zap.Int64(s.Kind.Total+"_now", now))
		}
	}
}
