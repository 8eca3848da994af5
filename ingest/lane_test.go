package ingest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/share"
)

// startLanes runs lanes without a server, for tests in virtual time.
func startLanes(t *testing.T, cfg Config, store Store) (put func(name string, bytes int) <-chan error, stop func(context.Context) error) {
	m, err := newMetrics(prometheus.NewRegistry(), nil, func() int64 { return 0 }, func() int64 { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	ls := newLanes(cfg, store, m, zap.NewNop(), func(r *request) { r.done <- struct{}{} })
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
				r.idempotencyKey = "k"
				waiting.Push("default", &part{request: r, name: "default/p", count: next, entries: [][]byte{{}, {}}})
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
	put, stop := startLanes(t, DefaultConfig(), store)
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
