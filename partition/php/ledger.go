package php

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
)

// How often the queues of a namespace are summed up, and how many of them.
const (
	ledgerEvery = 5 * time.Second
	ledgerShare = 20 // of the time, one part
	maxSummed   = 1000
	sumPage     = 100
)

// outcomes are the totals of an account, as package lua/php counts them.
var outcomes = []string{"published", "claimed", "acked", "nacked", "requeued",
	"buried", "unfit", "lapsed", "moved", "twins",
	"unreadable", "died", "respawned", "deleted", "purged"}

// ledger is what the queues of a namespace were summed up to last.
type ledger struct {
	mu   sync.Mutex // held while it is made anew
	at   time.Time
	took time.Duration
	last atomic.Pointer[summary]
}

// summary never changes.
type summary struct {
	residual int64
	jobs     map[string]int64 // by state
	outcomes map[string]int64 // of the accounts
}

// summed is the sum of the queues of a namespace, the first 1,000 by name, no older than old.
func (s *Store) summed(ctx context.Context, n *namespace, old time.Duration) (*summary, error) {
	l := n.sums
	l.mu.Lock() // one at a time: others want what it finds
	defer l.mu.Unlock()
	if last := l.last.Load(); last != nil && old > 0 && time.Since(l.at) < max(old,
		ledgerShare*l.took) {
		return last, nil
	}
	began := time.Now()
	queues, err := s.queues(ctx, n)
	if err != nil {
		return nil, err
	}
	sum := &summary{jobs: map[string]int64{"ready": 0, "delayed": 0, "leased": 0, "dead": 0, "reserved": 0}, outcomes: map[string]int64{}}
	for _, outcome := range outcomes {
		sum.outcomes[outcome] = 0
	}
	for queues = queues[:min(len(queues), maxSummed)]; len(queues) > 0; {
		page := queues[:min(len(queues), sumPage)]
		queues = queues[len(page):]
		if err := s.addUp(ctx, n, page, sum); err != nil {
			return nil, err
		}
	}
	l.last.Store(sum)
	l.at, l.took = time.Now(), time.Since(began)
	return sum, nil
}

// addUp adds some queues. Leases and account of a queue are of one moment: what is claimed between
// would look like a residual.
func (s *Store) addUp(ctx context.Context, n *namespace, queues []string, to *summary) error {
	return s.reads.Do(ctx, func() error {
		pipe := s.backend.Background.TxPipeline()
		type counts struct {
			ready                           *redis.IntCmd
			delayed, reserved, leases, dead *redis.IntCmd
			account                         *redis.MapStringStringCmd
		}
		all := make([]counts, len(queues))
		for i, queue := range queues {
			k := n.keys(queue)
			all[i] = counts{pipe.LLen(ctx, k.ready), pipe.ZCard(ctx, k.delayed),
				pipe.ZCard(ctx, k.reserved), pipe.ZCard(ctx, k.leases),
				pipe.ZCard(ctx, k.dead), pipe.HGetAll(ctx, k.account)}
		}
		if _, err := pipe.Exec(ctx); err != nil && !backend.IsWrongType(err) {
			return backend.Classify(err)
		}
		for _, c := range all {
			leased := c.leases.Val()
			to.jobs["ready"] += c.ready.Val()
			to.jobs["delayed"] += c.delayed.Val()
			to.jobs["leased"] += leased
			to.jobs["dead"] += c.dead.Val()
			to.jobs["reserved"] += max(0, c.reserved.Val()-leased)
			a := numbers(c.account.Val())
			residual := a["claimed"] - a["acked"] - a["nacked"] - a["requeued"] - a["buried"] - a["unfit"] - a["lapsed"] - leased
			to.residual += max(residual, -residual)
			for outcome, count := range a {
				to.outcomes[outcome] += count
			}
		}
		return nil
	})
}
