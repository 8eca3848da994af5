package job_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
)

var evalLine = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)

// scriptMicros is the time that Redis spends in the scripts that f calls, by EVALSHA.
func scriptMicros(tb testing.TB, c *redis.Client, f func()) float64 {
	tb.Helper()
	if err := c.ConfigResetStat(ctx).Err(); err != nil {
		tb.Fatal(err)
	}
	f()
	text, err := c.Info(ctx, "commandstats").Result()
	if err != nil {
		tb.Fatal(err)
	}
	m := evalLine.FindStringSubmatch(text)
	if m == nil {
		tb.Fatal("no EVALSHA ran")
	}
	usec, _ := strconv.ParseFloat(m[2], 64)
	return usec
}

// server is a server of the test's own, which knows the scripts of both packages.
func server(tb testing.TB) *redis.Client {
	tb.Helper()
	c := redistest.Start(tb).Client()
	for _, s := range slices.Concat(lua.All(), luajob.All()) {
		if err := c.ScriptLoad(ctx, s.Source).Err(); err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

// repeat sends a call n times in pipelines of 50.
func repeat(tb testing.TB, c *redis.Client, n int, script *lua.Script, call func(i int) ([]string, []any)) {
	tb.Helper()
	for i := 0; i < n; {
		pipe := c.Pipeline()
		for range min(50, n-i) {
			keys, argv := call(i)
			pipe.EvalSha(context.Background(), script.SHA, keys, argv...)
			i++
		}
		if _, err := pipe.Exec(context.Background()); err != nil {
			tb.Fatal(err)
		}
	}
}

const payload = 200 // bytes

// produceCall stores k entries in a living partition.
func produceCall(k int) ([]string, []any) {
	argv := []any{1 << 40, 1 << 30, 50_000, 1000, 60_000, 1 << 30, payload, len("sw:{buffer.0}:q:") + 1, 1, 0, k}
	for range k {
		argv = append(argv, strings.Repeat("x", payload))
	}
	return []string{"sw:{buffer.0}:ready", "sw:{buffer.0}:ledger", "sw:{buffer.0}:q:a", "sw:{buffer.0}:m:a"}, argv
}

func full(k int) []string {
	out := make([]string, k)
	for i := range out {
		out[i] = strings.Repeat("x", payload-len("0000000000000 3 "))
	}
	return out
}

// rounds measures what each call costs Redis, in µs, best of five rounds, which take turns.
func rounds(tb testing.TB, c *redis.Client, n int, calls map[string]func(n int) float64) map[string]float64 {
	best := map[string]float64{}
	for range 5 {
		for name, call := range calls {
			took := call(n) / float64(n)
			if best[name] == 0 || took < best[name] {
				best[name] = took
			}
		}
		c.FlushDB(ctx)
	}
	return best
}

// BenchmarkAgainstProduce compares the time in Redis of a publish with that of the
// buffer's produce, of 1 and of 128 in one call.
func BenchmarkAgainstProduce(b *testing.B) {
	c := server(b)
	s := newShard(b, c)
	s.maxJobs = 1 << 40
	for _, k := range []int{1, 128} {
		b.Run(fmt.Sprint(k), func(b *testing.B) {
			keys, argv := s.publishCall(group{queue: "a", bodies: full(k)})
			pkeys, pargv := produceCall(k)
			n := max(200, b.N/k)
			got := rounds(b, c, n, map[string]func(int) float64{
				"produce": func(n int) float64 {
					return scriptMicros(b, c, func() {
						repeat(b, c, n, lua.Produce, func(int) ([]string, []any) { return pkeys, pargv })
					})
				},
				"publish": func(n int) float64 {
					return scriptMicros(b, c, func() {
						repeat(b, c, n, luajob.Publish, func(int) ([]string, []any) { return keys, argv })
					})
				},
			})
			b.ReportMetric(got["produce"], "produce-µs")
			b.ReportMetric(got["publish"], "publish-µs")
			b.ReportMetric(got["publish"]/got["produce"], "ratio")
		})
	}
}

// BenchmarkLife tells the time in Redis of the life of a job: publish, claim, ack, of k
// jobs a call; also where their leases are counted, of the queue or of each tenant.
func BenchmarkLife(b *testing.B) {
	c := server(b)
	for _, row := range []struct {
		k    int
		kind string
		by   string
	}{{1, "", ""}, {16, "", ""}, {128, "", ""}, {1, "/limited", ""}, {16, "/limited", ""}, {1, "/by", "tenant"}, {16, "/by", "tenant"}} {
		k := row.k
		b.Run(fmt.Sprint(k, row.kind), func(b *testing.B) {
			n := max(100, min(5000, b.N/k))
			best := map[string]float64{}
			for range 5 {
				s := newShard(b, c)
				s.maxJobs, s.bytes = 1<<40, 64<<20
				s.stored(group{queue: "a", bodies: full(128)}) // the queue lives on
				took := map[string]float64{}
				keys, argv := s.publishCall(group{queue: "a", bodies: full(k), attributes: `{"tenant":"red"}`})
				took["publish"] = scriptMicros(b, c, func() {
					repeat(b, c, n, luajob.Publish, func(int) ([]string, []any) { return keys, argv })
				})
				keys, argv, _ = s.claimCall("lane", "token", false, request{queues: []string{"a"}, count: k})
				var spare []string
				if row.kind != "" {
					argv[5] = "0 0 0 1000000 publish w: " + row.by
					spare = s.spare()
				}
				keys = append(keys, spare...)
				took["claim"] = scriptMicros(b, c, func() {
					repeat(b, c, n, luajob.Claim, func(int) ([]string, []any) { return keys, argv })
				})
				leased := c.ZRange(ctx, s.key("lease"), 0, -1).Val()
				took["ack"] = scriptMicros(b, c, func() {
					repeat(b, c, n, luajob.Ack, func(i int) ([]string, []any) {
						refs := make([]any, k)
						for x := range refs {
							refs[x], _, _ = strings.Cut(leased[i*k+x], " ")
						}
						keys, argv := s.ackCall("a", refs...)
						return append(keys, spare...), argv
					})
				})
				c.FlushDB(ctx)
				for name, us := range took {
					if us /= float64(n); best[name] == 0 || us < best[name] {
						best[name] = us
					}
				}
			}
			for name, us := range best {
				b.ReportMetric(us, name+"-µs")
			}
		})
	}
}

// BenchmarkManyQueues tells the time in Redis, a job, of calls that claim and ack one job of each of 24 queues, as those of a busy
// server do; also where their leases are counted.
func BenchmarkManyQueues(b *testing.B) {
	const n = 24
	c := server(b)
	best, queues, each, names := map[string]float64{}, [n]string{}, [n]request{}, [n]any{}
	for i := range n {
		queues[i] = fmt.Sprint("q", i)
		each[i], names[i] = request{queues: queues[i : i+1], count: 1}, queues[i]
	}
	s := newShard(b, c)
	s.maxJobs, s.bytes = 1<<40, 64<<20
	for range max(3, b.N) {
		for _, kind := range []string{"", "limited "} {
			for _, q := range queues {
				s.stored(group{queue: q, bodies: full(40)})
			}
			keys, argv, _ := s.claimCall("lane", "token", false, each[:]...)
			var spare []string
			if kind != "" {
				spare = s.spare()
				for i := range n {
					argv[4+n+i] = "0 0 0 1000000 publish w:"
				}
			}
			took := func(verb string, do func()) {
				us := scriptMicros(b, c, do) / n / 40
				if best[kind+verb] == 0 || us < best[kind+verb] {
					best[kind+verb] = us
				}
			}
			took("claim", func() {
				repeat(b, c, 40, luajob.Claim, func(int) ([]string, []any) { return append(keys, spare...), argv })
			})
			var acks [40][]any
			at := map[string]int{}
			for _, member := range c.ZRange(ctx, s.key("lease"), 0, -1).Val() {
				seq, queue, _ := strings.Cut(member, " ")
				i, _ := strconv.Atoi(queue[1:])
				acks[at[queue]] = append(acks[at[queue]], i+1, 1, seq)
				at[queue]++
			}
			took("ack", func() {
				repeat(b, c, 40, luajob.Ack, func(i int) ([]string, []any) {
					return append(s.common(queues[:]...), spare...), append(append([]any{n}, names[:]...), acks[i]...)
				})
			})
			c.FlushDB(ctx)
		}
	}
	for name, us := range best {
		b.ReportMetric(us, strings.ReplaceAll(name, " ", "-")+"-µs")
	}
	b.ReportMetric((best["limited claim"]+best["limited ack"])/(best["claim"]+best["ack"]), "ratio")
}
