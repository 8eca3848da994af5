package job

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// Bounds of a forecast.
const (
	maxForecastSteps = 1000
	maxForecastJobs  = 100_000
)

// ErrTooManyDelayed: a queue shares its shards with so many delayed jobs, or ticks of
// schedules, that counting its own would take long. Ask for the namespace.
var ErrTooManyDelayed = fmt.Errorf("too many delayed jobs or ticks to tell those of one queue: %w",
	backend.ErrUnavailable)

// Forecast counts the delayed jobs that come due in each of the next n steps, 1 to 1,000; the
// first has those that are due now, too. An empty queue stands for all of the namespace. For
// one queue it reads up to 100,000 jobs of the shards, and is ErrTooManyDelayed beyond.
func (s *scheduler) Forecast(ctx context.Context, ns *Namespace, queue string, step time.Duration,
	n int) ([]int64, error) {
	return s.forecast(ctx, ns, queue, step, n, func(sh *shard) string { return sh.delay })
}

// NextTicks counts the next tick of each active schedule in each of the next n steps, as
// Forecast counts jobs. One that is more than a week away counts when it deserves a look.
func (s *scheduler) NextTicks(ctx context.Context, ns *Namespace, queue string, step time.Duration,
	n int) ([]int64, error) {
	return s.forecast(ctx, ns, queue, step, n, func(sh *shard) string { return sh.due })
}

// forecast counts the members of a set of each shard by the step that their score is in.
func (s *scheduler) forecast(ctx context.Context, ns *Namespace, queue string, step time.Duration, n int,
	set func(*shard) string) ([]int64, error) {
	if step < time.Millisecond || step > MaxDelay || n < 1 || n > maxForecastSteps || queue != "" &&
		!partition.ValidQueue(queue) {
		return nil, ErrBadArgument
	}
	now, err := s.backend.KnownTime(ctx)
	if err != nil {
		return nil, err
	}
	counts := make([]int64, n)
	err = s.reads.Do(ctx, func() error {
		if queue == "" {
			return s.forecastAll(ctx, ns, now, ms(step), counts, set)
		}
		return s.forecastQueue(ctx, ns, queue, now, ms(step), counts, set)
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}

func (s *scheduler) forecastAll(ctx context.Context, ns *Namespace, now, step int64, counts []int64,
	set func(*shard) string) error {
	for _, sh := range ns.all() {
		pipe := s.backend.Background.Pipeline()
		for i := range counts {
			from := "(" + strconv.FormatInt(now+step*int64(i), 10)
			if i == 0 {
				from = "0" // prepared jobs are below
			}
			pipe.ZCount(ctx, set(sh), from, strconv.FormatInt(now+step*int64(i+1), 10))
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

func (s *scheduler) forecastQueue(ctx context.Context, ns *Namespace, queue string, now, step int64,
	counts []int64, set func(*shard) string) error {
	const page = 2000
	suffix := " " + queue
	end := strconv.FormatInt(now+step*int64(len(counts)), 10)
	for _, number := range ns.Shards(queue) {
		key := set(ns.shardAt(number))
		total, err := s.backend.Background.ZCount(ctx, key, "0", end).Result()
		if err = backend.Classify(err); err != nil {
			return err
		}
		if total > maxForecastJobs {
			return ErrTooManyDelayed
		}
		for from := int64(0); from < total; from += page {
			list, err := s.backend.Background.ZRangeArgsWithScores(ctx,
				redis.ZRangeArgs{Key: key, ByScore: true,
					Start: "0", Stop: end, Offset: from, Count: page}).Result()
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

// scanPage is how many schedules ScanSchedules reads at once: 6 MiB of specifications at most.
const scanPage = 100

// ScanSchedules hands the schedules of a queue, or of the namespace where queue is empty, to
// visit, page by page. all is false where there are more than most, and then it reads none, and
// where visit says that it has enough.
func (s *scheduler) ScanSchedules(ctx context.Context, ns *Namespace, queue string, most int,
	visit func([]Schedule) bool) (all bool, err error) {
	if queue != "" && !partition.ValidQueue(queue) {
		return false, ErrBadArgument
	}
	// As lists are, and with what the caller does meanwhile: see Schedules.
	waited := s.pace.Do(ctx, func(ctx context.Context) {
		all, err = s.scanSchedules(ctx,
			ns, queue, most, visit)
	})
	return all, cmp.Or(waited, err)
}

func (s *scheduler) scanSchedules(ctx context.Context, ns *Namespace, queue string, most int,
	visit func([]Schedule) bool) (all bool, err error) {
	shards := ns.scheduleShards(queue)
	for _, number := range shards {
		n, err := s.backend.Background.HLen(ctx, ns.shardAt(number).namesOf(queue)).Result()
		if err != nil {
			return false, backend.Classify(err)
		}
		if most -= int(n); most < 0 {
			return false, nil
		}
	}
	for _, number := range shards {
		if all, err := s.scanShard(ctx, ns.shardAt(number), queue, visit); err != nil || !all {
			return false, err
		}
	}
	return true, nil
}

func (s *scheduler) scanShard(ctx context.Context, sh *shard, queue string, visit func([]Schedule) bool) (all bool, err error) {
	names, err := s.scheduleNames(ctx, sh, queue)
	if err != nil {
		return false, err
	}
	for page := range slices.Chunk(names, scanPage) {
		if err := s.readSchedules(ctx, sh, page); err != nil {
			return false, err
		}
		if !visit(page) {
			return false, nil
		}
	}
	return true, nil
}

// ScanShard hands all schedules of a shard to visit, page by page, until that is false.
func (s *scheduler) ScanShard(ctx context.Context, d DueShard, visit func([]Schedule) bool) error {
	var err error
	waited := s.pace.Do(ctx, func(ctx context.Context) {
		_, err = s.scanShard(ctx, d.Namespace.shardAt(d.Shard), "", visit)
	})
	return cmp.Or(waited, err)
}
