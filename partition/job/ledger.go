package job

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition/backend"
)

// Ledger reads the account of a namespace: of each shard at one moment.
func (s *Store) Ledger(ctx context.Context, ns *Namespace) (total Ledger, err error) {
	calls := make([]*backend.Call, len(ns.shards))
	for i, sh := range ns.shards {
		calls[i] = backend.NewCall(luajob.Ledger, sh.Breaker, []string{sh.Ledger, sh.lease, sh.delay})
	}
	if err := s.read(ctx, calls...); err != nil {
		return Ledger{}, err
	}
	for _, c := range calls {
		var l Ledger
		for _, field := range []*int64{
			&l.Published, &l.Acked, &l.Expired, &l.Deleted, &l.Lost, &l.Dead, &l.Died, &l.Respawned, &l.Delayed, &l.Leased, &l.Keys,
			&l.Prepared,
		} {
			*field = c.Rest.Int()
		}
		if c.Rest.Broken {
			return Ledger{}, c.Misread()
		}
		l.Ready = l.Published - l.Acked - l.Expired - l.Deleted - l.Lost - l.Dead - l.Prepared - l.Delayed - l.Leased
		total.add(l)
	}
	return total, nil
}

func (l *Ledger) add(o Ledger) {
	l.Published += o.Published
	l.Acked += o.Acked
	l.Expired += o.Expired
	l.Deleted += o.Deleted
	l.Lost += o.Lost
	l.Dead += o.Dead
	l.Ready += o.Ready
	l.Prepared += o.Prepared
	l.Delayed += o.Delayed
	l.Leased += o.Leased
	l.Died += o.Died
	l.Respawned += o.Respawned
	l.Keys += o.Keys
}

// Audit counts the jobs that are stored and returns how many more the ledger has:
// 0 but while jobs come and go, or after something other than Spillway removed some.
func (s *Store) Audit(ctx context.Context, ns *Namespace) (residual int64, err error) {
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
				for _, sh := range ns.shards {
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

// Bounds of a forecast.
const (
	maxForecastSteps = 1000
	maxForecastJobs  = 100_000
)

// ErrTooManyDelayed: a queue shares its shards with so many delayed jobs that counting its own
// would take long. Ask for the namespace.
var ErrTooManyDelayed = fmt.Errorf("too many delayed jobs to tell those of one queue: %w",
	backend.ErrUnavailable)

// Forecast counts the delayed jobs that come due in each of the next n steps, 1 to 1,000; the
// first has those that are due now, too. An empty queue stands for all of the namespace. For
// one queue it reads up to 100,000 jobs of the shards, and is ErrTooManyDelayed beyond.
func (s *Store) Forecast(ctx context.Context, ns *Namespace, queue string, step time.Duration,
	n int) ([]int64, error) {
	if step < time.Millisecond || step > MaxDelay || n < 1 || n > maxForecastSteps || queue != "" &&
		!ValidQueue(queue) {
		return nil, ErrBadArgument
	}
	now, err := s.backend.KnownTime(ctx)
	if err != nil {
		return nil, err
	}
	counts := make([]int64, n)
	err = s.reads.Do(ctx, func() error {
		if queue == "" {
			return s.forecastAll(ctx, ns, now, ms(step), counts)
		}
		return s.forecastQueue(ctx, ns, queue, now, ms(step), counts)
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}

func (s *Store) forecastAll(ctx context.Context, ns *Namespace, now, step int64, counts []int64) error {
	for _, sh := range ns.shards {
		pipe := s.backend.Background.Pipeline()
		for i := range counts {
			from := "(" + strconv.FormatInt(now+step*int64(i), 10)
			if i == 0 {
				from = "-inf"
			}
			pipe.ZCount(ctx, sh.delay, from, strconv.FormatInt(now+step*int64(i+1), 10))
		}
		cmds, err := pipe.Exec(ctx)
		if err = backend.Classify(err); err != nil {
			return err
		}
		for i, c := range cmds {
			counts[i] += c.(*redis.IntCmd).Val()
		}
	}
	return nil
}

func (s *Store) forecastQueue(ctx context.Context, ns *Namespace, queue string, now, step int64,
	counts []int64) error {
	const page = 2000
	suffix := " " + queue
	end := strconv.FormatInt(now+step*int64(len(counts)), 10)
	for _, number := range ns.Shards(queue) {
		key := ns.shards[number].delay
		total, err := s.backend.Background.ZCount(ctx, key, "-inf", end).Result()
		if err = backend.Classify(err); err != nil {
			return err
		}
		if total > maxForecastJobs {
			return ErrTooManyDelayed
		}
		for from := int64(0); from < total; from += page {
			list, err := s.backend.Background.ZRangeWithScores(ctx, key, from, from+page-1).Result()
			if err = backend.Classify(err); err != nil {
				return err
			}
			for _, z := range list {
				member, _ := z.Member.(string)
				i := max(0, (int64(z.Score)-now-1)/step)
				if strings.HasSuffix(member, suffix) && i < int64(len(counts)) {
					counts[i]++
				}
			}
		}
	}
	return nil
}
