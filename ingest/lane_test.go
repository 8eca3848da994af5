package ingest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp/fasthttputil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/share"
)

// none is a figure of metrics.
func none() int64 { return 0 }

// startLanes runs lanes without a server, for tests in virtual time.
func startLanes(t *testing.T, cfg Config, store Store) (put func(name string, bytes int) <-chan error, stop func(context.Context) error) {
	m, err := newMetrics(prometheus.NewRegistry(), nil, none, none, none)
	if err != nil {
		t.Fatal(err)
	}
	ls := newLanes(cfg, store, m, zap.NewNop())
	ls.start()
	return func(name string, bytes int) <-chan error {
		namespace, partition, others := strings.Cut(name, "/")
		if !others {
			namespace, partition = "default", name
		}
		r := newRequest()
		r.namespace = store.Namespace(namespace)
		r.setPartition([]byte(namespace + "/" + partition))
		r.add(event{data: make([]byte, bytes)}, bytes)
		r.seal()
		result := make(chan error, 1)
		ls.put(r)
		go func() {
			<-r.done
			result <- r.parts[0].err
		}()
		return result
	}, ls.stop
}

func TestRequestsToAStalledStoreAreAnsweredInBoundedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Lanes = 1
		store := newFake()
		var healed atomic.Bool
		store.produce = func(ctx context.Context, groups []*partition.Group) {
			if !healed.Load() {
				<-ctx.Done()
				failWith(partition.ErrUnknown)(ctx, groups)
				return
			}
			store.keep(ctx, groups)
		}
		put, stop := startLanes(t, cfg, store)
		start := time.Now()
		var waiters []<-chan error
		for range 100 {
			waiters = append(waiters, put("p", 1))
			<-time.After(100 * time.Millisecond)
		}
		healed.Store(true)
		for i, result := range waiters {
			err := <-result
			if i == 0 && !errors.Is(err, partition.ErrUnknown) {
				t.Errorf("the first flush: %v", err)
			}
		}
		if took := time.Since(start); took > 10*time.Second+3*cfg.ProduceTimeout {
			t.Errorf("the last answer came after %v", took)
		}
		if err := <-put("p", 1); err != nil {
			t.Errorf("after the stall: %v", err)
		}
		if err := stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestPartsThatWaitTooLongForAFlushAreRejected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Lanes = 1
		store := newFake()
		store.produce = func(ctx context.Context, groups []*partition.Group) {
			<-time.After(cfg.ProduceTimeout - time.Millisecond)
			store.keep(ctx, groups)
		}
		put, stop := startLanes(t, cfg, store)
		start := time.Now()
		var results []<-chan error
		var done []time.Duration
		for range 10 {
			// Only one fits into a flush, so each waits for all before it.
			results = append(results, put("p", maxLargeFlushBytes/2+1))
		}
		overloaded := 0
		for _, result := range results {
			if err := <-result; errors.Is(err, errOverloaded) {
				overloaded++
			} else if err != nil {
				t.Error(err)
			}
			done = append(done, time.Since(start))
		}
		if last := done[len(done)-1]; last > 3*cfg.ProduceTimeout {
			t.Errorf("the last answer came after %v", last)
		}
		if overloaded == 0 || overloaded == 10 {
			t.Errorf("%d of 10 were rejected", overloaded)
		}
		if err := stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A namespace that was served much waits for others that come again and again, and a large
// part waits in two lanes. Neither waits longer.
func TestNobodyWaitsLongerWhileNamespacesShareAStalledStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Lanes = 1
		store := newFake()
		for n := range 30 {
			name := fmt.Sprint("n", n)
			store.namespaces[name] = &partition.Namespace{Name: name, Policy: partition.DefaultPolicy()}
		}
		store.produce = func(ctx context.Context, groups []*partition.Group) {
			<-ctx.Done()
			failWith(partition.ErrUnknown)(ctx, groups)
		}
		put, stop := startLanes(t, cfg, store)
		var slowest atomic.Int64
		var waiting sync.WaitGroup
		for range 300 {
			began := time.Now()
			result := put(fmt.Sprintf("n%d/p", rand.N(30)), []int{100, largePart - 100, largePart + 100, maxFlushBytes}[rand.N(4)])
			waiting.Go(func() {
				<-result
				for took := int64(time.Since(began)); ; {
					if was := slowest.Load(); took <= was || slowest.CompareAndSwap(was, took) {
						return
					}
				}
			})
			<-time.After(100 * time.Millisecond)
		}
		waiting.Wait()
		if took := time.Duration(slowest.Load()); took > 3*cfg.ProduceTimeout+sweepEvery {
			t.Errorf("one was answered after %v", took)
		}
		if err := stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAPanickingStoreFailsOneFlushWithUnknownOutcome(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, nil)
	keep := store.produce
	store.produce = func(context.Context, []*partition.Group) { panic("a bug") }
	r := p.post("/v1/default/p", "x")
	if r.expect(t, 503, "store_unavailable"); r.body.Outcome != "unknown" {
		t.Errorf("got %s", r.raw)
	}
	store.produce = keep
	p.post("/v1/default/p", "x").expect(t, 200, "")
	if got := p.metric("panics_total"); got != 1 {
		t.Errorf("counted %v panics", got)
	}
}

func TestABacklogIsFlushedInOrder(t *testing.T) {
	t.Parallel()
	f := newFlush(maxKnownPartitions, maxFlushBytes)
	waiting := share.NewQueue[*part]()
	ns := newFake().namespaces["default"]
	next, want := 0, 0
	for want < next || next == 0 {
		// For a while more arrives than a flush takes, so the backlog grows.
		for range 3000 {
			if next < 60_000 {
				r := &request{namespace: ns}
				waiting.Push("default", &part{request: r, name: "default/p", idempotencyKey: "k", count: next, entries: [][]byte{{}, {}}})
				next++
			}
		}
		f.fill(&waiting, func(p *part) bool {
			if p.count < want || p.count > want+maxFlushEntries/2 {
				t.Fatalf("part %d, want %d", p.count, want)
			}
			return true
		})
		for _, g := range f.used {
			if g.first.count != want {
				t.Fatalf("part %d, want %d", g.first.count, want)
			}
			want++
		}
		f.results(func(*part, error) {})
	}
	if p, waits := waiting.Next(); waits {
		t.Errorf("part %d still waits", p.count)
	}
}

func TestBrokenPartitionsAreLoggedAtALimitedRate(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.InfoLevel)
	store := newFake()
	store.produce = failWith(fmt.Errorf("WRONGTYPE: %w", partition.ErrBroken))
	ln := fasthttputil.NewInmemoryListener()
	p := listenOn(t, store, nil, ln, ln.Dial, zap.New(core))
	for range 20 {
		p.post("/v1/default/p", "secret payload").expect(t, 503, "store_unavailable")
	}
	if n := logs.FilterMessage("store rejects partition").Len(); n == 0 || n > 5 {
		t.Errorf("logged %d times", n)
	}
	for _, e := range logs.All() {
		if text := fmt.Sprint(e.Message, e.ContextMap()); strings.Contains(text, "secret") {
			t.Errorf("a payload in the log: %s", text)
		}
	}
}

func TestLargeAndSmallPartsOfAPartitionAreStoredInOrder(t *testing.T) {
	t.Parallel()
	store := newFake()
	keep := store.produce
	store.produce = func(ctx context.Context, groups []*partition.Group) {
		for range rand.N(50) { // so that the lanes overtake each other
			runtime.Gosched()
		}
		keep(ctx, groups)
	}
	cfg := DefaultConfig()
	cfg.ProduceTimeout = time.Minute // a part that waits for long on a slow machine is rejected otherwise
	put, stop := startLanes(t, cfg, store)
	var want [3][]int
	for range 3000 {
		to, bytes := rand.N(3), rand.N(100)
		if rand.N(4) == 0 {
			bytes = largePart + rand.N(1000)
		}
		want[to] = append(want[to], bytes)
		put(fmt.Sprint("p", to), bytes)
	}
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for to := range want {
		var got []int
		for _, e := range store.entries(fmt.Sprint("default/p", to)) {
			got = append(got, len(e)-len("0123456789012 "))
		}
		if !slices.Equal(got, want[to]) {
			t.Errorf("partition %d: %d entries are stored in another order, or lost: want %d", to, len(got), len(want[to]))
		}
	}
}

func TestSmallPartsDoNotWaitForLargeOnesOfOthers(t *testing.T) {
	t.Parallel()
	cfg, store := DefaultConfig(), newFake()
	cfg.Lanes = 1
	hold, held := make(chan struct{}), make(chan struct{}, 100)
	keep := store.produce
	store.produce = func(ctx context.Context, groups []*partition.Group) {
		if len(groups[0].Entries[0]) > largePart {
			held <- struct{}{}
			<-hold
		}
		keep(ctx, groups)
	}
	put, stop := startLanes(t, cfg, store)
	large := put("large", 2*largePart)
	<-held
	behind := put("large", 1)
	if err := <-put("small", 1); err != nil {
		t.Error(err)
	}
	close(hold)
	if err := errors.Join(<-large, <-behind); err != nil {
		t.Error(err)
	}
	if got := store.entries("default/large"); len(got) != 2 || len(got[0]) < len(got[1]) {
		t.Error("the small part overtook the large one of its partition")
	}
	if err := <-put("large", 1); err != nil { // at home again
		t.Error(err)
	}
	if err := stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOrderWithinAPartitionHoldsUnderConcurrency(t *testing.T) {
	t.Parallel()
	const writers, requests, partitions = 10, 40, 5
	p := listenTCP(t, newFake(), nil)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range requests {
				part, many := rng.IntN(partitions), 1+rng.IntN(3)
				if rng.IntN(10) == 0 {
					many = 400
				}
				var lines strings.Builder
				for j := range many {
					fmt.Fprintf(&lines, "%d %d %d\n", w, i, j)
				}
				headers := []string{asNDJSON}
				if rng.IntN(4) == 0 {
					headers = append(headers, fmt.Sprintf("Idempotency-Key: %d %d", w, i))
				}
				if r := p.post(fmt.Sprintf("/v1/default/p%d", part), lines.String(), headers...); r.status != 200 {
					t.Errorf("got %d %s", r.status, r.raw)
				}
			}
		})
	}
	wg.Wait()
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored := 0
	for part := range partitions {
		last := map[int]int{}
		for _, e := range p.store.entries(fmt.Sprintf("default/p%d", part)) {
			var at int64
			var w, i, j int
			if _, err := fmt.Sscan(e, &at, &w, &i, &j); err != nil {
				t.Fatalf("%q: %v", e, err)
			}
			if position := 1 + i*1000 + j; position <= last[w] {
				t.Fatalf("p%d: entry %d.%d of writer %d came late", part, i, j, w)
			} else {
				last[w] = position
			}
			stored++
		}
	}
	if got := p.metric("entries_total", "default", "accepted"); int(got) != stored || stored < writers*requests {
		t.Errorf("stored %d, counted %v", stored, got)
	}
}

func TestConcurrentMixedRequestsGetTheirOwnResults(t *testing.T) {
	t.Parallel()
	store := newFake()
	store.failPartitions(map[string]error{"bad": partition.ErrUnavailable})
	p := listenTCP(t, store, func(c *Config) { c.Lanes = 4 })
	var wg sync.WaitGroup
	for w := range 20 {
		wg.Go(func() {
			for i := range 20 {
				body := fmt.Sprintf("{\"partition\":\"w%d\",\"data\":%d}\n{\"partition\":\"bad\",\"data\":1}\n{\"partition\":\"all\",\"data\":1}", w, i)
				r := p.do(http.MethodPost, "/v1/default", body, asNDJSON)
				if r.status != 200 || r.body.Accepted != 2 || r.results() != "1:retry/store_unavailable" {
					t.Errorf("got %d %s", r.status, r.raw)
				}
			}
		})
	}
	wg.Wait()
	if got := len(store.entries("default/all")); got != 400 {
		t.Errorf("stored %d, want 400", got)
	}
}

func TestRequestsThatArriveDuringAFlushShareTheNext(t *testing.T) {
	t.Parallel()
	store := newFake()
	entered, open := store.blockProduce()
	p := listenTCP(t, store, func(c *Config) { longProduceTimeout(c); c.Lanes = 1 })
	defer open()
	var wg sync.WaitGroup
	post := func() { p.post("/v1/default/p", "x").expect(t, 200, "") }
	wg.Go(post)
	<-entered
	for range 50 {
		wg.Go(post)
	}
	queued := func() int {
		l := p.lanes.all[0]
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue)
	}
	eventually(t, func() bool { return queued() == 50 })
	open()
	wg.Wait()
	if store.calls != 2 {
		t.Errorf("51 requests took %d flushes, want 2", store.calls)
	}
}

func TestKeyedRequestsToOnePartitionShareARoundTrip(t *testing.T) {
	t.Parallel()
	store := newFake()
	entered, open := store.blockProduce()
	p := listenTCP(t, store, func(c *Config) { longProduceTimeout(c); c.Lanes = 1 })
	defer open()
	var wg sync.WaitGroup
	post := func(key int) { p.post("/v1/default/p", "x", fmt.Sprint("Idempotency-Key: ", key)).expect(t, 200, "") }
	wg.Go(func() { post(0) })
	<-entered
	for i := range 50 {
		wg.Go(func() { post(1 + i/2) }) // each twice
	}
	eventually(t, func() bool {
		l := p.lanes.all[0]
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue) == 50
	})
	open()
	wg.Wait()
	if stored := len(store.entries("default/p")); store.calls != 2 || stored != 26 {
		t.Errorf("51 keyed requests took %d flushes and stored %d entries, want 2 and 26", store.calls, stored)
	}
}

// queued are parts that wait.
func queued(parts ...*part) *share.Queue[*part] {
	q := share.NewQueue[*part]()
	for _, p := range parts {
		q.Push(p.request.namespace.Name, p)
	}
	return &q
}

// partResult is the result of one part.
type partResult struct{ accepted, evicted, depth int }

func TestFlushesKeepOrderAndBoundsAndDivideResultsExactly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ns := &partition.Namespace{Name: "n", Policy: partition.DefaultPolicy()}
		ns.Policy.Capacity = rapid.IntRange(1, 2500).Draw(t, "capacity")
		size := rapid.OneOf(rapid.IntRange(1, 5), rapid.IntRange(1, 1000))

		var parts []*part
		model := map[string]int{} // depth by partition, one part after the other
		want := map[*part]partResult{}
		for i := range rapid.IntRange(1, 60).Draw(t, "parts") {
			p := &part{request: &request{namespace: ns}, name: fmt.Sprintf("n/p%d", rapid.IntRange(0, 4).Draw(t, "partition"))}
			p.count = size.Draw(t, "entries")
			if rapid.IntRange(0, 5).Draw(t, "keyed") == 0 {
				p.idempotencyKey = fmt.Sprint("key", i)
			}
			for j := range p.count {
				p.entries = append(p.entries, fmt.Appendf(nil, "%d.%d", i, j))
			}
			p.bytes = rapid.OneOf(rapid.Just(100), rapid.IntRange(1, maxFlushBytes)).Draw(t, "bytes")
			parts = append(parts, p)

			depth := model[p.name] + p.count
			evicted := max(0, depth-ns.Policy.Capacity)
			model[p.name] = depth - evicted
			want[p] = partResult{p.count, evicted, depth - evicted}
		}

		var order [5][]string // entries as the store sees them
		var wantOrder [5][]string
		partitionOf := func(name string) int { return int(name[len(name)-1] - '0') }
		for _, p := range parts {
			for _, e := range p.entries {
				wantOrder[partitionOf(p.name)] = append(wantOrder[partitionOf(p.name)], string(e))
			}
		}

		store := newFake()
		depths := map[string]int{}
		f := newFlush(maxKnownPartitions, maxFlushBytes)
		completed := 0
		rest := parts
		waiting := queued(parts...)
		for flushes := 0; len(rest) > 0; flushes++ {
			if flushes > len(parts) {
				t.Fatalf("%d parts are left after %d flushes", len(rest), flushes)
			}
			looked, taken := 0, 0
			f.fill(waiting, func(*part) bool { looked++; return true })
			for _, g := range f.used {
				for p := g.first; p != nil; p = p.next {
					taken++
				}
			}
			prefix, last := rest[:taken], taken == len(rest)
			rest = rest[taken:]
			if looked > taken+1 {
				t.Fatalf("looked at %d parts to take %d", looked, taken)
			}
			entries, bytes, joined := 0, 0, 0
			for i, g := range f.groups {
				members, keyed := 0, false
				for p := f.used[i].first; p != nil; p = p.next {
					members++
					keyed = keyed || p.idempotencyKey != ""
					bytes += p.bytes
				}
				if keyed && members > 1 || (g.IdempotencyKey != "") != keyed {
					t.Fatalf("a request with a key shares its group with %d others", members-1)
				}
				if len(g.Entries) > maxGroupEntries {
					t.Fatalf("a group of %d entries", len(g.Entries))
				}
				entries += len(g.Entries)
				joined += members
				for _, e := range g.Entries {
					order[partitionOf(g.Partition)] = append(order[partitionOf(g.Partition)], string(e))
				}
				g.Accepted = len(g.Entries)
				g.Evicted = max(0, depths[g.Partition]+g.Accepted-ns.Policy.Capacity)
				depths[g.Partition] += g.Accepted - g.Evicted
				g.Depth = depths[g.Partition]
			}
			if joined > 1 && (entries > maxFlushEntries || bytes > maxFlushBytes) {
				t.Fatalf("a flush of %d entries, %d bytes", entries, bytes)
			}
			if joined != len(prefix) {
				t.Fatalf("took %d parts, grouped %d", len(prefix), joined)
			}
			if !last && entries+rest[0].count <= maxFlushEntries && bytes+rest[0].bytes <= maxFlushBytes {
				t.Fatalf("a part waits although it fits into the flush: %d entries, %d bytes", entries, bytes)
			}
			f.results(func(p *part, err error) {
				completed++
				if got := (partResult{p.accepted, p.evicted, p.depth}); got != want[p] || err != nil {
					t.Fatalf("part got %+v, %v; want %+v", got, err, want[p])
				}
			})
		}
		if completed != len(parts) || fmt.Sprint(order) != fmt.Sprint(wantOrder) || store.wrong != nil {
			t.Fatalf("completed %d of %d parts; order %v", completed, len(parts), order)
		}
	})
}

func TestAFlushRemembersABoundedNumberOfPartitions(t *testing.T) {
	t.Parallel()
	f := newFlush(maxKnownPartitions, maxFlushBytes)
	ns := newFake().namespaces["default"]
	for i := range 2 * maxKnownPartitions {
		p := &part{request: &request{namespace: ns}, name: fmt.Sprintf("default/p%d", i), entries: [][]byte{{}}}
		f.fill(queued(p), func(*part) bool { return true })
		if f.groups[0].Partition != fmt.Sprintf("p%d", i) {
			t.Fatalf("got %q", f.groups[0].Partition)
		}
		f.results(func(*part, error) {})
	}
	if len(f.known) > maxKnownPartitions+1 {
		t.Errorf("%d partitions are remembered", len(f.known))
	}
}

func TestPartsDoNotJoinAGroupAcrossAKeyedRequest(t *testing.T) {
	t.Parallel()
	ns := newFake().namespaces["default"]
	var parts []*part
	for _, key := range []string{"", "", "k", "", "k", "l", "", ""} {
		r := &request{namespace: ns}
		parts = append(parts, &part{request: r, name: "default/p", idempotencyKey: key, entries: [][]byte{{}}, count: 1})
	}
	f := newFlush(maxKnownPartitions, maxFlushBytes)
	waiting := queued(parts...)
	f.fill(waiting, func(*part) bool { return true })
	var got []string
	for _, g := range f.groups {
		got = append(got, fmt.Sprintf("%s%d", g.IdempotencyKey, len(g.Entries)))
	}
	_, waits := waiting.Next()
	if want := "[2 k1 1 k1 l1 2]"; waits || fmt.Sprint(got) != want {
		t.Errorf("groups %v, want %s; some still wait: %v", got, want, waits)
	}
}

func TestThePartitionNameOfAGroupIsACopy(t *testing.T) {
	t.Parallel()
	f := newFlush(maxKnownPartitions, maxFlushBytes)
	r := newRequest()
	r.namespace = newFake().namespaces["default"]
	r.setPartition([]byte("default/first"))
	r.add(event{data: []byte("x")}, 10)
	r.seal()
	f.fill(queued(&r.parts[0]), func(*part) bool { return true })
	name := f.groups[0].Partition
	copy(r.name, "zzzzzzzzzzzzz")
	if name != "first" {
		t.Errorf("the group's partition became %q", name)
	}
}
