package admin

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/drops"
)

// backlog is a store with partitions on a real Redis, and a sweep of it.
type backlog struct {
	*partition.Store
	ns       *partition.Namespace
	redis    *redis.Client
	observer *observer
	ahead    time.Duration // of the sweep's clock
}

func newBacklog(tb testing.TB, namespaces ...string) *backlog {
	server := redistest.Start(tb)
	policies := map[string]partition.Policy{}
	for _, name := range append(namespaces, "default") {
		p := partition.DefaultPolicy()
		p.MaxPartitions, p.Capacity, p.MaxAge, p.Linger = 1_000_000, 30, time.Hour, 0
		policies[name] = p
	}
	store, err := partition.Open(partition.Config{Backend: backendtest.Open(tb, backend.Config{URL: server.URL()}), Prefix: "sw", Namespaces: policies}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = store.Close() })
	if _, err := store.Check(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	b := &backlog{Store: store, ns: store.Namespace("default"), redis: server.Client()}
	b.observer = newObserver(func() View { return View{Store: store} }, zap.NewNop())
	b.observer.now = func() time.Time { return time.Now().Add(b.ahead) }
	return b
}

// produce puts entries of an age into each of n partitions, from first on.
func (b *backlog) produce(tb testing.TB, first, n int, entries func(i int) (count int, age time.Duration)) {
	tb.Helper()
	now := time.Now()
	for at := first; at < first+n; at += 1000 {
		var groups []*partition.Group
		for i := at; i < min(at+1000, first+n); i++ {
			count, age := entries(i)
			if count == 0 {
				continue
			}
			g := &partition.Group{Namespace: b.ns, Partition: fmt.Sprintf("p%06d", i)}
			for range count {
				g.Entries = append(g.Entries, partition.AppendEntry(nil, now.Add(-age).UnixMilli(), nil, []byte("x")))
			}
			groups = append(groups, g)
		}
		b.Produce(tb.Context(), groups)
		for _, g := range groups {
			if g.Err != nil {
				tb.Fatal(g.Err)
			}
		}
	}
}

// pass ticks until a whole pass is over, and returns how many ticks that took.
func (b *backlog) pass(tb testing.TB) (ticks int) {
	tb.Helper()
	sp := func() *figures { return b.observer.spaces["default"] }
	for before := int64(-1); ; ticks++ {
		b.observer.watch()
		b.observer.tick(tb.Context())
		switch {
		case before < 0:
			before = sp().completed
			if ticks == 0 && before > 0 && sp().next == (partition.Page{}) {
				return 1
			}
		case sp().completed > before:
			return ticks + 1
		case ticks > 1000:
			tb.Fatal("the pass does not end")
		}
	}
}

var evalCalls = regexp.MustCompile(`cmdstat_(evalsha|eval):calls=(\d+),usec=(\d+)`)

// calls are the script calls of a Redis so far, and the time they took.
func (b *backlog) calls(tb testing.TB) (n int, took time.Duration) {
	tb.Helper()
	text, err := b.redis.Info(tb.Context(), "commandstats").Result()
	if err != nil {
		tb.Fatal(err)
	}
	for _, m := range evalCalls.FindAllStringSubmatch(text, -1) {
		calls, _ := strconv.Atoi(m[2])
		usec, _ := strconv.Atoi(m[3])
		n, took = n+calls, took+time.Duration(usec)*time.Microsecond
	}
	return n, took
}

// With 100,000 partitions the first rows by every column are those of a full count.
func TestTheFirstRowsByEveryColumnAreThoseOfAFullCount(t *testing.T) {
	t.Parallel()
	const count = 100_000
	b := newBacklog(t)
	// A permutation, so that neither names nor the order of arrival help.
	spread := func(i int) int { return i * 7919 % count }
	depth := func(i int) int { return 1 + 20*spread(i)/count }
	age := func(i int) time.Duration { return time.Minute + time.Duration(spread(i+31)%3000)*time.Second }
	b.produce(t, 0, count, func(i int) (int, time.Duration) { return depth(i), age(i) })
	firstPass := b.pass(t)
	// 500 partitions take more, some beyond their capacity of 30.
	more := func(i int) int { return 1 + spread(i)%40 }
	b.produce(t, 5000, 500, func(i int) (int, time.Duration) { return more(i), time.Second })
	b.ahead = time.Hour // the time between two reads is nearly the same for all
	b.observer.refreshed = 0
	b.pass(t)
	t.Logf("a pass takes %d ticks", firstPass)

	type counted struct {
		name               string
		depth, in, evicted int
		oldest             time.Duration
	}
	var all []counted
	for i := range count {
		c := counted{name: fmt.Sprintf("p%06d", i), depth: depth(i), oldest: age(i)}
		if i >= 5000 && i < 5500 {
			c.in = more(i)
			c.depth = min(30, depth(i)+more(i))
			c.evicted = depth(i) + more(i) - c.depth
			if c.evicted >= depth(i) {
				c.oldest = time.Second
			}
		}
		all = append(all, c)
	}
	const k = 50
	for column, number := range map[string]func(counted) float64{
		"depth":      func(c counted) float64 { return float64(c.depth) },
		"fill":       func(c counted) float64 { return float64(c.depth) },
		"oldest_age": func(c counted) float64 { return c.oldest.Seconds() },
		"in":         func(c counted) float64 { return float64(c.in) },
		"evicted":    func(c counted) float64 { return float64(c.evicted) },
		"partition":  nil,
		"trouble": func(c counted) float64 {
			if c.evicted > 0 {
				return 1e9 + float64(c.evicted)
			}
			return c.oldest.Seconds()
		},
	} {
		for _, descending := range []bool{true, false} {
			slices.SortFunc(all, func(a, b counted) int {
				c := 0
				if number != nil {
					c = cmp.Compare(number(a), number(b))
				}
				if c == 0 && number == nil {
					c = cmp.Compare(a.name, b.name)
				}
				if descending {
					return -c
				}
				return c
			})
			list := b.observer.list("default", order{column, descending}, 0, k, func(*row) bool { return true })
			if list.Total != count || len(list.Partitions) != k || !list.Sweep.Complete {
				t.Fatalf("%s: total %d, %d rows, %+v", column, list.Total, len(list.Partitions), list.Sweep)
			}
			byName := map[string]counted{}
			for _, c := range all {
				byName[c.name] = c
			}
			for i, got := range list.Partitions {
				want := all[i]
				// Rows that are equal in the column may stand for each other.
				if same := number != nil && number(byName[got.Partition]) == number(want); !same && got.Partition != want.name {
					t.Errorf("%s, descending %v, row %d: got %s (%+v), want %+v", column, descending, i, got.Partition, byName[got.Partition], want)
					break
				}
				if got.Depth != byName[got.Partition].depth {
					t.Errorf("%s has depth %d, want %d", got.Partition, got.Depth, byName[got.Partition].depth)
				}
			}
		}
	}
	sum := int64(0)
	for _, c := range all {
		sum += int64(c.depth)
	}
	if list := b.observer.list("default", order{"depth", true}, 0, 1, func(*row) bool { return true }); list.Sum.Depth != sum {
		t.Errorf("the sum of depths is %d, want %d", list.Sum.Depth, sum)
	}
}

// However many partitions there are, and however many watch, a second costs so many calls.
func TestATickOfTheSweepMakesABoundedNumberOfCalls(t *testing.T) {
	t.Parallel()
	b := newBacklog(t, "a", "b", "c")
	b.produce(t, 0, 10_000, func(int) (int, time.Duration) { return 1, time.Minute })
	// A page is two calls; the refresh is one for each namespace with partitions.
	for range 12 {
		b.ahead += time.Second
		for range 100 {
			b.observer.watch()
		}
		before, _ := b.calls(t)
		b.observer.tick(t.Context())
		if after, _ := b.calls(t); after-before > 2*sweepPages+1 {
			t.Errorf("a tick makes %d calls", after-before)
		}
	}
	b.ahead += time.Minute // nobody watches
	before, _ := b.calls(t)
	b.observer.tick(t.Context())
	if after, _ := b.calls(t); after-before > 2*idlePages {
		t.Errorf("a tick that nobody watches makes %d calls", after-before)
	}
}

func TestPartitionsThatEndLeaveTheTable(t *testing.T) {
	t.Parallel()
	b := newBacklog(t)
	b.produce(t, 0, 500, func(int) (int, time.Duration) { return 1, time.Minute })
	b.pass(t)
	if n := len(b.observer.spaces["default"].rows); n != 500 || b.observer.known != 500 {
		t.Fatalf("%d rows, %d known", n, b.observer.known)
	}
	if err := b.redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	b.produce(t, 490, 20, func(int) (int, time.Duration) { return 1, time.Minute })
	b.pass(t)
	list := b.observer.list("default", order{"partition", false}, 0, 100, func(*row) bool { return true })
	if list.Total != 20 || b.observer.known != 20 || list.Partitions[0].Partition != "p000490" {
		t.Errorf("%d rows, %d known, first %+v", list.Total, b.observer.known, list.Partitions)
	}
}

func TestBeyondItsBoundTheSweepKeepsTheDeepAndOld(t *testing.T) {
	t.Parallel()
	b := newBacklog(t)
	b.observer.maxRows = 300
	b.produce(t, 0, 2000, func(i int) (int, time.Duration) {
		if i%100 == 99 {
			return 20, 50 * time.Minute
		}
		return 1, time.Minute
	})
	b.pass(t)
	list := b.observer.list("default", order{"depth", true}, 0, 30, func(*row) bool { return true })
	if list.Total > 300 || list.Sweep.LeftOut < 1700 {
		t.Errorf("%d rows are kept, %d left out", list.Total, list.Sweep.LeftOut)
	}
	for i, r := range list.Partitions[:20] {
		if r.Depth != 20 {
			t.Errorf("row %d has depth %d: a deep partition was left out", i, r.Depth)
		}
	}
}

func TestRatesAreThoseBetweenTwoReads(t *testing.T) {
	t.Parallel()
	r := row{Stats: partition.Stats{Accepted: 100, Evicted: 10, Expired: 5, Depth: 50}, swept: 1000}
	r.rates(partition.Stats{Accepted: 140, Evicted: 20, Expired: 5, Depth: 40}, 3000)
	if r.in != 20 || r.evicted != 5 || r.expired != 0 || r.out != 20 {
		t.Errorf("got in %v, out %v, evicted %v, expired %v", r.in, r.out, r.evicted, r.expired)
	}
	// The partition was empty in between: its counters began anew.
	r = row{Stats: partition.Stats{Accepted: 100, Evicted: 10, Depth: 50}, swept: 1000}
	r.rates(partition.Stats{Accepted: 4, Depth: 3}, 2000)
	if r.in != 4 || r.evicted != 0 || r.out != 51 {
		t.Errorf("after it was empty: in %v, out %v, evicted %v", r.in, r.out, r.evicted)
	}
}

// BenchmarkSweep shows what a tick and a pass cost with 100,000 partitions.
func BenchmarkSweep(b *testing.B) {
	s := newBacklog(b)
	s.produce(b, 0, 100_000, func(i int) (int, time.Duration) { return 1 + i%5, time.Duration(i%3000) * time.Second })
	s.pass(b)
	_, before := s.calls(b)
	ticks := 0
	for b.Loop() {
		ticks += s.pass(b)
	}
	_, after := s.calls(b)
	b.ReportMetric(float64(ticks)/float64(b.N), "ticks/pass")
	b.ReportMetric(float64((after-before).Microseconds())/1000/float64(ticks), "redis-ms/tick")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(ticks), "ms/tick")
}

func BenchmarkFirstRows(b *testing.B) {
	sp := &figures{swept: swept{rows: map[string]*row{}}}
	for i := range 100_000 {
		name := fmt.Sprintf("p%06d", i)
		sp.rows[name] = &row{Stats: partition.Stats{Partition: name, Depth: i * 7919 % 100_000}}
	}
	for b.Loop() {
		sp.best(order{"depth", true}, 100)
	}
}

func TestTheMakerOfAFloodIsNamedByReason(t *testing.T) {
	t.Parallel()
	now, log := time.Now(), drops.NewLog()
	record := func(namespace string, d drops.Drop) { log.Of(namespace).Record(d) }
	record("kart", drops.Drop{Reason: drops.Evicted, Partition: "old", Entries: 900, At: now.Add(-2 * time.Minute)})
	record("kart", drops.Drop{Reason: drops.Evicted, Partition: "calm", Entries: 5, At: now})
	for range 3 {
		record("kart", drops.Drop{Reason: drops.Evicted, Partition: "flood", Entries: 5, At: now, Detail: "5 entries came at once"})
	}
	record("kart", drops.Drop{Reason: drops.RateLimited, Partition: "calm", Entries: 1, At: now, Detail: "rate_limited: slow down"})
	record("game", drops.Drop{Reason: drops.Unauthorized, Entries: 9, At: now}) // of no partition
	got := makers(log, now)
	if len(got) != 1 || len(got["kart"]) != 2 || got["kart"]["evicted"] != (Maker{"flood", 0.75, "5 entries came at once"}) || got["kart"]["rate_limited"] != (Maker{"calm", 1, ""}) {
		t.Errorf("got %+v", got)
	}
	if got := makers(nil, now); len(got) != 0 {
		t.Errorf("without samples: %+v", got)
	}
}
