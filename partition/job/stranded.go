package job

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/backend"
)

// stranded is the jobs of a namespace that are in shards where no claim of their queue asks:
// its spread was lowered.
type stranded struct {
	jobs   int64
	queues int
	first  string // one of the queues
	shard  int    // where its jobs are
}

// add counts those of one shard, which has jobs of queues.
func (t *stranded) add(ctx context.Context, s *Store, ns *Namespace, sh *shard,
	queues []string) error {
	var left []string
	for _, queue := range queues {
		if !slices.Contains(ns.Shards(queue), sh.Number) {
			left = append(left, queue)
		}
	}
	if len(left) > 0 && t.queues == 0 {
		t.first, t.shard = left[0], sh.Number
	}
	t.queues += len(left)
	for page := range slices.Chunk(left, maxCallQueues) {
		pipe := s.backend.Background.Pipeline()
		counts := make([]*redis.IntCmd, len(page))
		for i, queue := range page {
			counts[i] = pipe.HLen(ctx, sh.jobs(queue))
		}
		if _, err := pipe.Exec(ctx); backend.Classify(err) != nil && !backend.IsWrongType(err) {
			return backend.Classify(err)
		}
		for _, c := range counts {
			t.jobs += c.Val()
		}
	}
	return nil
}

// showStranded sets the gauge of a namespace that is still served.
func (s *core) showStranded(ns *Namespace, jobs int64) {
	s.swapping.Lock()
	defer s.swapping.Unlock()
	if s.Namespace(ns.Name) != nil {
		s.metrics.stranded.WithLabelValues(ns.Name).Set(float64(jobs))
	}
}

// noteStranded shows what a walk through all shards of a namespace found, and logs once what
// to do.
func (e *Expirer) noteStranded(ns *Namespace, found stranded) {
	e.store.showStranded(ns, found.jobs)
	if found.queues > 0 && !e.stranded[ns.home] {
		e.store.log.Warn("jobs are in a shard where no claim asks, because the spread of their queue was lowered: raise it again, drain the queue, then lower it",
			zap.String("namespace", ns.Name), zap.String("queue", found.first), zap.Int("shard", found.shard),
			zap.Int("queues", found.queues), zap.Int64("jobs", found.jobs))
	}
	e.stranded[ns.home] = found.queues > 0
}
