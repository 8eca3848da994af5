package job

import (
	"context"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/backend"
)

// checkRollback looks whether a ledger lacks what it had, and counts what was lost with it.
func (s *Store) checkRollback(ctx context.Context) {
	type place struct {
		namespace string
		shard     int
	}
	var places []place
	var ledgers []backend.WatchedLedger
	for _, ns := range s.Namespaces() {
		for i := range ns.shards {
			sh := ns.shards[i]
			places = append(places, place{ns.Name, i})
			ledgers = append(ledgers, backend.WatchedLedger{Key: sh.ledger, Breaker: sh.breaker, Detector: &sh.rollback})
		}
	}
	s.backend.CheckRollback(ctx, &s.rounds, "published", ledgers, func(i int, r backend.Rollback) {
		s.metrics.rolledBack.Add(float64(r.Missing))
		s.log.Error("the store was rolled back: published jobs are gone, and so is the ledger that counted them",
			zap.String("namespace", places[i].namespace), zap.Int("shard", places[i].shard),
			zap.Int64("jobs", r.Missing), zap.Int64("published_before", r.Before), zap.Int64("published_now", r.Now))
	})
}
