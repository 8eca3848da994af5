package partition

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

// DuePartition is a partition of the active set.
type DuePartition struct {
	Partition string
	Due       int64 // Unix ms on the store's clock; of those that are due: now
	// Held: the partition is due, and left to processes before this one until Due.
	Held bool
}

// holdPerRank is how long a process leaves a partition that is due to each of those before it.
// So the first one works alone while it keeps up, and one that is dead or frozen costs so much.
const holdPerRank = 100 * time.Millisecond

// Home is where the namespace lives; nil: no Store made it.
func (n *Namespace) Home() *space.Home { return n.home }

// hold is how long this process leaves what is due in a shard to those before it, in ms: never so
// long that entries expire meanwhile.
func (n *Namespace) hold(shard int) int64 {
	longest := max(0, n.Policy.MaxAge-n.Policy.Linger) / 8
	return min(time.Duration(n.home.Rank(shard))*holdPerRank, longest).Milliseconds()
}

// Due lists up to limit partitions of a shard that are due now, those that have
// been due for longest first. It skips offset of them; total counts all that are due.
// Where the list holds all of them, the first partition that is not due yet follows:
// it tells how long to sleep. A process that is not the first for the shard takes everything
// for due 100 ms later for each live process before it: see space.Home.Rank. After a list
// without one that is due, the next call reads one member first.
func (verbs) Due(ctx context.Context, ns *Namespace, shard, offset,
	limit int) (list []DuePartition, total int, err error) {
	if err := ns.store.mayRun(ctx); err != nil {
		return nil, 0, err
	}
	sh := ns.shard(shard)
	if sh == nil {
		return nil, 0, errNoShard
	}
	if !sh.Breaker.Allow() {
		return nil, 0, backend.ErrUnreachable
	}
	hold := ns.hold(shard)
	sh.alarm.reset(hold)
	now, err := ns.store.backend.KnownTime(ctx)
	if err != nil {
		return nil, 0, err
	}
	if sh.quiet.Load() && offset == 0 {
		first, err := ns.store.backend.Out.ZRangeWithScores(ctx, sh.ready, 0, 0).Result()
		err = backend.Classify(err)
		if sh.Breaker.Done(err); err != nil {
			return nil, 0, err
		}
		if len(first) == 0 || int64(first[0].Score) > now-hold {
			return dueList(nil, first, now, hold, limit), 0, nil
		}
	}
	until := strconv.FormatInt(now-hold, 10)
	pipe := ns.store.backend.Out.Pipeline()
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
	sh.quiet.Store(len(due.Val()) == 0)
	return dueList(due.Val(), later.Val(), now, hold, limit), int(count.Val()), nil
}

// errNoShard: the store has fewer shards of the namespace than the process assumed.
var errNoShard = backend.Wrap(ErrUnavailable, errors.New("the namespace has no such shard"))

// dueList joins the partitions that are due and the first that is not. A partition
// that was claimed and settled between the two reads is in both; it is listed once,
// for two claims of it in one call would both get its lease.
func dueList(due []string, later []redis.Z, now, hold int64, limit int) []DuePartition {
	list := make([]DuePartition, 0, len(due)+1)
	for _, name := range due {
		list = append(list, DuePartition{Partition: name, Due: now})
	}
	for _, z := range later {
		if name, ok := z.Member.(string); ok && len(list) < limit && !slices.Contains(due, name) {
			at := int64(z.Score)
			list = append(list, DuePartition{name, at + hold, at <= now})
		}
	}
	return list
}
