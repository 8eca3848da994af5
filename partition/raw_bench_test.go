package partition_test

import (
	"bufio"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// A flush of one lane through the store and go-redis, beside the same script call
// on a connection of its own that nothing stands between: one write of RESP made
// beforehand, replies read by the line. What the two differ by is all that an own
// client could save.
func BenchmarkFlush(b *testing.B) {
	for _, groups := range []int{1, 5, 50} {
		s, flush, raw, conn := rawFlush(b, groups)
		b.Run(fmt.Sprintf("partitions=%d/store", groups), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Produce(b.Context(), flush)
				if err := flush[groups-1].Err; err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("partitions=%d/raw", groups), func(b *testing.B) {
			b.ReportAllocs()
			answers := bufio.NewReader(conn)
			for b.Loop() {
				if err := send(conn, answers, raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Otherwise nobody sees that the scripts changed until the benchmark is run.
func TestTheRawFlushIsOneThatProduceTakes(t *testing.T) {
	t.Parallel()
	s, flush, raw, conn := rawFlush(t, 5)
	if err := send(conn, bufio.NewReader(conn), raw); err != nil {
		t.Fatal(err)
	}
	s.Produce(t.Context(), flush)
	for _, g := range flush {
		if g.Err != nil || g.Depth != 2 {
			t.Errorf("%s: depth %d, %v", g.Partition, g.Depth, g.Err)
		}
	}
}

// rawFlush is one entry for each of some partitions: as groups of the store, and as a request of RESP.
func rawFlush(t testing.TB, groups int) (s *partition.Store, flush []*partition.Group, raw []byte, conn net.Conn) {
	t.Helper()
	server := redistest.Start(t)
	s, err := partition.Open(partition.Config{
		URL: server.URL(), Prefix: "sw", Namespaces: map[string]partition.Policy{"default": partition.DefaultPolicy()},
	}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	now, _ := s.Now()
	entry := partition.AppendEntry(nil, now, nil, []byte(strings.Repeat("x", 200)))
	const list = "sw:{default.0}:q:"
	keys := []string{"sw:{default.0}:ready", "sw:{default.0}:ledger"}
	args := []string{"10000", "128", "1000", "100000", "86400000", "1000", strconv.Itoa(len(entry)), strconv.Itoa(len(list))}
	for i := range groups {
		name := fmt.Sprint("p", i)
		flush = append(flush, &partition.Group{Namespace: s.Namespace("default"), Partition: name, Entries: [][]byte{entry}})
		keys, args = append(keys, list+name, "sw:{default.0}:m:"+name), append(args, "1", string(entry))
	}
	args = slices.Concat([]string{"EVALSHA", lua.Produce.SHA, strconv.Itoa(len(keys))}, keys, args)
	raw = fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		raw = fmt.Appendf(raw, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if conn, err = net.DialTimeout("tcp", server.Client().Options().Addr, time.Second); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return s, flush, raw, conn
}

// send writes a script call, and reads its answer: an array of integers and texts.
func send(conn net.Conn, answers *bufio.Reader, raw []byte) error {
	if _, err := conn.Write(raw); err != nil {
		return err
	}
	for left := 1; left > 0; left-- {
		line, err := answers.ReadSlice('\n')
		if err != nil || line[0] == '-' {
			return fmt.Errorf("%q, %v", line, err)
		}
		switch line[0] {
		case '*':
			n, err := strconv.Atoi(string(line[1 : len(line)-2]))
			if err != nil {
				return err
			}
			left += n
		case '$': // a sample of what a full partition evicted
			left++
		}
	}
	return nil
}

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
