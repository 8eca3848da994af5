package job

import (
	"context"

	"github.com/redis/go-redis/v9"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition/backend"
)

// Ledger reads the account of a namespace: of each shard at one moment.
func (s *inspector) Ledger(ctx context.Context, ns *Namespace) (total Ledger, err error) {
	shards := ns.all()
	calls := make([]*backend.Call, len(shards))
	for i, sh := range shards {
		calls[i] = backend.NewCall(luajob.Ledger, sh.Breaker, []string{sh.Ledger, sh.lease, sh.delay})
	}
	if err := s.read(ctx, calls...); err != nil {
		return Ledger{}, err
	}
	for _, c := range calls {
		for _, field := range []*int64{
			&total.Published,
			&total.Acked,
			&total.Expired,
			&total.Deleted,
			&total.Lost,
			&total.Dead,
			&total.Died,
			&total.Respawned,
			&total.Delayed,
			&total.Leased,
			&total.Keys,
			&total.Prepared,
			&total.Kept,
		} {
			*field += c.Rest.Int()
		}
		if c.Rest.Broken {
			return Ledger{}, c.Misread()
		}
	}
	l := &total
	l.Ready = l.Published - l.Acked - l.Expired - l.Deleted - l.Lost - l.Dead - l.Prepared - l.Delayed - l.Leased
	return total, nil
}

// Audit counts the jobs that are stored and returns how many more the ledger has:
// 0 but while jobs come and go, or after something other than Spillway removed some.
func (s *inspector) Audit(ctx context.Context, ns *Namespace) (residual int64, err error) {
	queues, err := s.Queues(ctx, ns)
	if err != nil {
		return 0, err
	}
	queues = append(queues, outbox)
	l, err := s.Ledger(ctx, ns)
	if err != nil {
		return 0, err
	}
	residual = l.Published - l.Acked - l.Expired - l.Deleted - l.Lost
	for len(queues) > 0 {
		n := min(len(queues), maxCallQueues)
		var counts []*redis.IntCmd
		err := s.reads.Do(ctx, func() error {
			pipe := s.backend.Background.Pipeline()
			for _, queue := range queues[:n] {
				for _, sh := range ns.all() {
					counts = append(counts, pipe.HLen(ctx, sh.jobs(queue)))
				}
			}
			_, err := pipe.Exec(ctx)
			return backend.Classify(err)
		})
		if err != nil {
			return 0, err
		}
		for _, c := range counts {
			residual -= c.Val()
		}
		queues = queues[n:]
	}
	return residual, nil
}
