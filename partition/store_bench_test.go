package partition_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// Throughput of the store alone, with what Redis itself spends on a script.
func BenchmarkStore(b *testing.B) {
	for _, size := range []struct{ groups, entries int }{{128, 1}, {16, 128}} {
		server := redistest.Start(b)
		policy := partition.DefaultPolicy()
		policy.Linger = 0
		s, err := partition.Open(partition.Config{
			URL: server.URL(), Prefix: "sw", Namespaces: map[string]partition.Policy{"default": policy},
		}, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Check(b.Context()); err != nil {
			b.Fatal(err)
		}
		ns := s.Namespace("default")
		payload := []byte(strings.Repeat("x", 200))
		groups := make([]*partition.Group, size.groups)
		requests := make([]partition.ClaimRequest, size.groups)
		for i := range groups {
			g := &partition.Group{Namespace: ns, Partition: fmt.Sprintf("p%d", i)}
			now, _ := s.Now()
			for range size.entries {
				g.Entries = append(g.Entries, partition.AppendEntry(nil, now+3600_000, nil, payload))
			}
			groups[i] = g
			requests[i] = partition.ClaimRequest{Namespace: ns, Partition: g.Partition, MaxBatches: 1}
		}
		produce := func(b *testing.B) {
			s.Produce(b.Context(), groups)
			for _, g := range groups {
				if g.Err != nil {
					b.Fatal(g.Err)
				}
			}
		}
		rate := func(b *testing.B, entries int) {
			b.ReportMetric(float64(b.N*entries)/b.Elapsed().Seconds(), "entries/s")
			info, _ := server.Client().Info(b.Context(), "commandstats").Result()
			if m := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+),usec_per_call=([\d.]+)`).FindStringSubmatch(info); m != nil {
				b.Logf("redis: %s µs a script", m[3])
			}
		}
		b.Run(fmt.Sprintf("produce/groups=%d/entries=%d", size.groups, size.entries), func(b *testing.B) {
			server.Client().ConfigResetStat(b.Context())
			for b.Loop() {
				produce(b)
			}
			rate(b, size.groups*size.entries)
		})
		b.Run(fmt.Sprintf("cycle/groups=%d/entries=%d", size.groups, size.entries), func(b *testing.B) {
			server.Client().FlushAll(b.Context())
			for b.Loop() {
				produce(b)
				claims := s.Claim(b.Context(), requests, time.Minute)
				var settle []*partition.Commit
				for _, c := range claims {
					if l := c.Lease; l != nil {
						settle = append(settle, &partition.Commit{Lease: l, Lo: l.From, Hi: l.To, Delivered: len(l.Entries)})
					}
				}
				if len(settle) == 0 {
					b.Fatalf("nothing claimed: %v", claims[0].Err)
				}
				s.Commit(b.Context(), settle)
			}
			rate(b, size.groups*size.entries)
		})
	}
}
