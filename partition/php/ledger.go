package php

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
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
	sum      job.Ledger
	residual int64
	reserved int64
	outcomes map[string]int64 // of the accounts
}

// Ledger sums up the queues of a namespace, the first 1,000 by name. What PHP pushed is not counted
// anywhere, so Published is what Spillway published, and there is no law between it and the rest;
// Audit has one. The sum is at most some seconds old.
func (s *Store) Ledger(ctx context.Context, ns *job.Namespace) (job.Ledger, error) {
	l, err := s.summed(ctx, ns, ledgerEvery)
	if err != nil {
		return job.Ledger{}, err
	}
	return l.sum, nil
}

// Audit is how many deliveries are not accounted for, in all queues that Ledger sums up:
// claimed = acked + nacked + requeued + buried + unfit + lapsed + leased.
func (s *Store) Audit(ctx context.Context, ns *job.Namespace) (residual int64, err error) {
	l, err := s.summed(ctx, ns, 0)
	if err != nil {
		return 0, err
	}
	return l.residual, nil
}

func (s *Store) summed(ctx context.Context, ns *job.Namespace,
	old time.Duration) (*summary, error) {
	n := s.named(ns.Name)
	if n == nil {
		return nil, job.ErrNoQueue
	}
	l := n.sums
	l.mu.Lock() // one at a time: others want what it finds
	defer l.mu.Unlock()
	if last := l.last.Load(); last != nil && old > 0 && time.Since(l.at) < max(old,
		ledgerShare*l.took) {
		return last, nil
	}
	began := time.Now()
	queues, err := s.Queues(ctx, ns)
	if err != nil {
		return nil, err
	}
	sum := &summary{outcomes: map[string]int64{}}
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
	a := sum.outcomes
	sum.sum.Published, sum.sum.Acked, sum.sum.Deleted = a["published"], a["acked"], a["deleted"]+a["purged"]
	sum.sum.Died, sum.sum.Respawned = a["died"], a["respawned"]
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
			to.sum.Ready += c.ready.Val()
			to.sum.Delayed += c.delayed.Val()
			to.sum.Leased += leased
			to.sum.Dead += c.dead.Val()
			to.reserved += max(0, c.reserved.Val()-leased)
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
