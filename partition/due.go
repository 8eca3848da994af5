package partition

import (
	"context"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
)

// DuePartition is a partition of the active set.
type DuePartition struct {
	Partition string
	Due       int64 // Unix ms on the store's clock; of those that are due: now
}

// Due lists up to limit partitions of a shard that are due now, those that have
// been due for longest first. It skips offset of them; total counts all that are due.
// Where the list holds all of them, the first partition that is not due yet follows:
// it tells how long to sleep.
func (verbs) Due(ctx context.Context, ns *Namespace, shard, offset,
	limit int) (list []DuePartition, total int, err error) {
	s := ns.store
	if err := s.ensureCompatible(ctx); err != nil {
		return nil, 0, err
	}
	sh := &ns.shards[shard]
	if !sh.Breaker.Allow() {
		return nil, 0, backend.ErrUnreachable
	}
	sh.alarm.reset()
	now, err := s.backend.KnownTime(ctx)
	if err != nil {
		return nil, 0, err
	}
	until := strconv.FormatInt(now, 10)
	pipe := s.backend.Out.Pipeline()
	count := pipe.ZCount(ctx, sh.ready, "-inf", until)
	due := pipe.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key:     sh.ready,
		ByScore: true,
		Start:   "-inf",
		Stop:    until,
		Offset:  int64(offset),
		Count:   int64(limit),
	})
	later := pipe.ZRangeArgsWithScores(ctx,
		redis.ZRangeArgs{Key: sh.ready, ByScore: true, Start: "(" + until, Stop: "+inf", Count: 1})
	_, err = pipe.Exec(ctx)
	err = backend.Classify(err)
	if sh.Breaker.Done(err); err != nil {
		return nil, 0, err
	}
	return dueList(due.Val(), later.Val(), now, limit), int(count.Val()), nil
}

// dueList joins the partitions that are due and the first that is not. A partition
// that was claimed and settled between the two reads is in both; it is listed once,
// for two claims of it in one call would both get its lease.
func dueList(due []string, later []redis.Z, now int64, limit int) []DuePartition {
	list := make([]DuePartition, 0, len(due)+1)
	for _, name := range due {
		list = append(list, DuePartition{name, now})
	}
	for _, z := range later {
		if name, ok := z.Member.(string); ok && len(list) < limit && !slices.Contains(due, name) {
			list = append(list, DuePartition{name, int64(z.Score)})
		}
	}
	return list
}
