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
// floor is a lower bound of the ledger's accepted: what a look read, and what
// this process was told is stored by calls that were sent after that. A call
// under way during a look may be in what was read or not, so it is left out:
// the bound stays true, and no look raises a false alarm.
type witness struct {
	mu    sync.Mutex
	look  uint64 // the look that floor begins with
	base  int64  // floor as it was then
	floor int64
	epoch string // the ledger's random name; empty while it is not known
}

// stored adds n entries that were acknowledged by a call sent under a look.
func (w *witness) stored(look uint64, n int) {
	w.mu.Lock()
	if w.look == look {
		w.floor += int64(n)
	}
	w.mu.Unlock()
}

func (w *witness) least() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.floor
}

// read compares what a look found with least, the floor before it was sent, and
// returns how many accepted entries the ledger no longer knows of, at least. A
// ledger of another epoch begins anew: then nothing of the base is in it. One
// that has a format and no epoch is older than its epoch, which was rolled back.
func (w *witness) read(look uint64, least, accepted int64, epoch string, formatted bool) (gone int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gone = max(0, least-accepted)
	if w.epoch != "" && epoch != w.epoch && (epoch != "" || !formatted) {
		gone = max(gone, w.base)
	}
	if gone > 0 {
		w.floor = accepted
	}
	w.floor = max(w.floor, accepted)
	w.look, w.base, w.epoch = look, w.floor, epoch
	return gone
}

// unread starts a look's bookkeeping where nothing could be read.
func (w *witness) unread(look uint64) {
	w.mu.Lock()
	w.look = look
	w.mu.Unlock()
}

// look reads every ledger, in one pipeline a server, and counts what was rolled back. It
// leaves out shards that cannot be reached: a look follows as soon as they can.
// It asks the ledgers themselves, not for the server's run_id: a failover that
// lost nothing is no alarm, and FLUSHALL, which changes no run_id, is one.
func (s *Store) look(ctx context.Context) {
	type reading struct {
		ns    *Namespace
		shard int
		least int64
		cmd   *redis.SliceCmd
	}
	var all []reading
	var absent []*witness
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	pipes := map[redis.Cmdable]redis.Pipeliner{}
	for _, ns := range s.Namespaces() {
		for i := range ns.shards {
			sh := &ns.shards[i]
			if !sh.breaker.allow() {
				absent = append(absent, &sh.witness)
				continue
			}
			server := s.backend.server(ctx, sh.ledger)
			pipe := pipes[server]
			if pipe == nil {
				pipe = server.Pipeline()
				pipes[server] = pipe
			}
			all = append(all, reading{ns, i, sh.witness.least(), pipe.HMGet(ctx, sh.ledger, "accepted", "epoch", "format")})
		}
	}
	var running sync.WaitGroup
	for _, pipe := range pipes {
		running.Go(func() { _, _ = pipe.Exec(ctx) }) // each command tells
	}
	running.Wait()
	// From here on calls count on top of what was read.
	look := s.looks.Add(1)
	for _, w := range absent {
		w.unread(look)
	}
	for _, r := range all {
		w := &r.ns.shards[r.shard].witness
		fields := r.cmd.Val()
		if err := classify(r.cmd.Err()); err != nil || len(fields) == 3 {
			r.ns.shards[r.shard].breaker.done(err)
		}
		if r.cmd.Err() != nil || len(fields) != 3 {
			w.unread(look)
			continue
		}
		text, _ := fields[0].(string)
		accepted, _ := strconv.ParseInt(text, 10, 64) // not there: 0
		epoch, _ := fields[1].(string)
		if gone := w.read(look, r.least, accepted, epoch, fields[2] != nil); gone > 0 {
			s.metrics.rolledBack.Add(float64(gone))
			s.log.Error("the store was rolled back: accepted entries are gone, and the ledger with them",
				zap.String("namespace", r.ns.Name), zap.Int("shard", r.shard),
				zap.Int64("entries", gone), zap.Int64("accepted_before", r.least), zap.Int64("accepted_now", accepted))
		}
	}
}
