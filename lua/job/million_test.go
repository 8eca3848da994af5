package job_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	luajob "github.com/spillway-io/spillway/lua/job"
)

// BenchmarkMillionDelayed tells what a million delayed jobs of 200 bytes in 1,000 queues
// take, and how long calls of promote are once 100,000 of them are due, 256 a call.
func BenchmarkMillionDelayed(b *testing.B) {
	for range b.N {
		c := server(b)
		s := newShard(b, c)
		s.maxJobs, s.maxQueues = 1<<40, 1<<40
		before := s.memory()
		for i := range 2000 {
			delay := int64(86_400_000)
			if i < 200 {
				delay = 1
			}
			keys, argv := s.publishCall(group{queue: fmt.Sprint("q", i%1000), delay: delay, bodies: full(500)})
			if err := c.EvalSha(ctx, luajob.Publish.SHA, keys, argv...).Err(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(s.memory()-before)/1e6, "B/job")
		var calls []float64 // µs
		for {
			members := c.ZRangeArgs(ctx, redis.ZRangeArgs{Key: s.key("delay"), ByScore: true, Start: "-inf", Stop: s.now(), Count: 256}).Val()
			if len(members) == 0 {
				break
			}
			var groups []due
			for _, m := range members {
				seq, queue, _ := strings.Cut(m, " ")
				if len(groups) == 0 || groups[len(groups)-1].queue != queue {
					groups = append(groups, due{queue, "delay", nil})
				}
				last := &groups[len(groups)-1]
				last.seqs = append(last.seqs, num(seq))
			}
			keys, argv := s.promoteCall(groups...)
			us := scriptMicros(b, c, func() {
				if err := c.EvalSha(ctx, luajob.Promote.SHA, keys, argv...).Err(); err != nil {
					b.Fatal(err)
				}
			})
			calls = append(calls, us)
		}
		slices.Sort(calls)
		b.ReportMetric(calls[len(calls)/2]/1000, "p50-ms")
		b.ReportMetric(calls[len(calls)*99/100]/1000, "p99-ms")
	}
}
