package ingest

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
)

// gated lets a store's calls wait until open is closed; entered tells that one does.
func (f *fakeStore) gated() (entered <-chan struct{}, open func()) {
	in, gate := make(chan struct{}, 64), make(chan struct{})
	inner := f.produce
	f.produce = func(ctx context.Context, groups []*partition.Group) {
		select {
		case in <- struct{}{}:
		default:
		}
		<-gate
		inner(ctx, groups)
	}
	return in, sync.OnceFunc(func() { close(gate) })
}

// patient lets requests wait for a gate as long as a slow machine needs.
func patient(c *Config) { c.ProduceTimeout = time.Minute }

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
				query := ""
				if rng.IntN(3) == 0 {
					query = "?ack=none"
				}
				if r := p.post(fmt.Sprintf("/v1/default/p%d%s", part, query), lines.String(), headers...); r.status > 202 {
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
			if place := 1 + i*1000 + j; place <= last[w] {
				t.Fatalf("p%d: entry %d.%d of writer %d came late", part, i, j, w)
			} else {
				last[w] = place
			}
			stored++
		}
	}
	if got := p.metric("entries_total", "default", "accepted"); int(got) != stored || stored < writers*requests {
		t.Errorf("stored %d, counted %v", stored, got)
	}
}

// checksummed is a payload that proves itself.
func checksummed(rng *rand.Rand, size int) string {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte('a' + rng.IntN(26))
	}
	return fmt.Sprintf("%08x%s", crc32.ChecksumIEEE(b), b)
}

func intact(entry string) bool {
	_, payload, _ := strings.Cut(entry, " ")
	sum, err := strconv.ParseUint(payload[:8], 16, 32)
	return err == nil && crc32.ChecksumIEEE([]byte(payload[8:])) == uint32(sum)
}

func TestNothingOfARequestIsKeptInBorrowedMemory(t *testing.T) {
	t.Parallel()
	const writers, requests = 16, 24
	store := newFake()
	entered, open := store.gated()
	p := listenTCP(t, store, patient)
	defer open()
	// Handlers return at once, and their connections' buffers serve the next
	// requests, while no entry has reached the store.
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 2))
			for i := range requests {
				payload := checksummed(rng, 1+rng.IntN(2000))
				body, headers := payload+"\n"+checksummed(rng, 30), []string{asNDJSON}
				path := fmt.Sprintf("/v1/default/w%d", w)
				switch i % 4 {
				case 1:
					body = gzipped(t, body)
					headers = append(headers, "Content-Encoding: gzip")
				case 2:
					body = zstded(t, body)
					headers = append(headers, "Content-Encoding: zstd")
				case 3:
					path = "/v1/default"
					var b strings.Builder
					for _, line := range strings.Split(body, "\n") {
						fmt.Fprintf(&b, `{"partition":"w%d","id":"i%d","data":%q}`+"\n", w, i, "-")
						fmt.Fprintf(&b, `{"partition":"w%d","data":"%s"}`+"\n", w, line)
					}
					body = b.String()
				}
				if r := p.post(path+"?ack=none", body, headers...); r.status != 202 {
					t.Errorf("got %d %s", r.status, r.raw)
				}
			}
		})
	}
	wg.Wait()
	<-entered
	open()
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for w := range writers {
		for _, e := range store.entries(fmt.Sprintf("default/w%d", w)) {
			head, payload, _ := strings.Cut(e, " ")
			if payload == `"-"` {
				if !strings.HasPrefix(head, "1763629675100#i") {
					t.Fatalf("entry %q is damaged", e)
				}
				continue
			}
			if n++; !intact(strings.ReplaceAll(e, `"`, "")) {
				t.Fatalf("entry %.60q is damaged", e)
			}
		}
	}
	if want := writers * requests * 2; n != want {
		t.Errorf("stored %d entries, want %d", n, want)
	}
}

func TestRequestsPastTheMemoryBoundAreRejected(t *testing.T) {
	t.Parallel()
	store := newFake()
	entered, open := store.gated()
	p := listen(t, store, func(c *Config) {
		patient(c)
		c.MaxBody, c.MaxDecompressed, c.MaxInflightBytes = 100_000, 100_000, 1_500_000
	})
	defer open()
	fill := func(body string) (accepted int) {
		for range 2000 {
			r := p.post("/v1/default/p?ack=none", body, asNDJSON)
			if r.status != 202 {
				if r.expect(t, 503, "overloaded"); r.header.Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
				return accepted
			}
			accepted++
		}
		return accepted
	}
	// Each holds the encoded entry, in a buffer of 22.5 to 28 kB.
	large := fill(strings.Repeat("x", 20_000))
	<-entered
	if large < 50 || large > 66 {
		t.Errorf("%d requests of about 25 kB fit into 1.5 MB", large)
	}
	// Decompressed bytes count as well.
	p.post("/v1/default/p", gzipped(t, strings.Repeat("x", 99_999)), "Content-Encoding: gzip").expect(t, 503, "overloaded")
	// A request of one byte takes about 1 KiB.
	small := fill("x")
	if left := 1_500_000 - large*22_500; small == 0 || small > left/1000 {
		t.Errorf("%d requests of 1 byte fit into what %d large ones left of 1.5 MB", small, large)
	}
	if got := p.metric("inflight_bytes"); got < 1_490_000 || got > 1_500_000 {
		t.Errorf("%v bytes in flight", got)
	}
	accepted := large + small
	open()
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(store.entries("default/p")); got != accepted {
		t.Errorf("stored %d of %d", got, accepted)
	}
}

func TestAPanickingStoreCostsOneFlushWithUnknownOutcome(t *testing.T) {
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

// startLanes runs lanes without a server, for tests in virtual time.
func startLanes(t *testing.T, cfg Config, store Store) (put func(name string, bytes int) <-chan error, stop func(context.Context) error) {
	m, err := newMetrics(prometheus.NewRegistry(), new(atomic.Int64), new(atomic.Int64))
	if err != nil {
		t.Fatal(err)
	}
	ls := newLanes(cfg, store, m, zap.NewNop(), func(r *request) { r.done <- struct{}{} })
	ls.start()
	return func(name string, bytes int) <-chan error {
		r := newRequest()
		r.namespace = store.Namespace("default")
		r.setPartition([]byte("default/" + name))
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

func TestAStalledStoreIsAnsweredForInBoundedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Lanes = 1
		store := newFake()
		var healed atomic.Bool
		store.produce = func(ctx context.Context, groups []*partition.Group) {
			if !healed.Load() {
				<-ctx.Done()
				failing(partition.ErrUnknown)(ctx, groups)
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

func TestPartsThatWaitForAFlushForTooLongAreRejected(t *testing.T) {
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
			// No two fit into a flush, so each waits for all before it.
			results = append(results, put("p", maxFlushBytes/2+1))
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

func TestWhatArrivesDuringAFlushMakesUpTheNext(t *testing.T) {
	t.Parallel()
	store := newFake()
	entered, open := store.gated()
	p := listenTCP(t, store, func(c *Config) { patient(c); c.Lanes = 1 })
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
	entered, open := store.gated()
	p := listenTCP(t, store, func(c *Config) { patient(c); c.Lanes = 1 })
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

func TestABacklogIsFlushedInOrderAndForgotten(t *testing.T) {
	t.Parallel()
	l := &lane{flush: newFlush(maxKnownPartitions), finish: func(*request) {}}
	ns := newFake().namespaces["default"]
	next, want := 0, 0
	for len(l.waiting) > 0 || next == 0 {
		// More arrives than a flush takes, for a while: the backlog grows.
		for range 3000 {
			if next < 60_000 {
				r := &request{namespace: ns}
				r.idempotencyKey = "k"
				l.waiting = append(l.waiting, &part{request: r, name: "default/p", count: next, entries: [][]byte{{}, {}}})
				next++
			}
		}
		taken := l.flush.fill(l.waiting[l.head:], func(p *part) bool {
			if p.count < want || p.count > want+maxFlushEntries/2 {
				t.Fatalf("part %d, want %d", p.count, want)
			}
			return true
		})
		for _, g := range l.flush.used {
			if g.first.count != want {
				t.Fatalf("part %d, want %d", g.first.count, want)
			}
			want++
		}
		l.advance(taken)
		l.flush.results(func(*part, error) {})
		if l.head > 0 && l.waiting[l.head-1] != nil || l.head > len(l.waiting)/2 {
			t.Fatalf("%d of %d parts are kept after their flush", l.head, len(l.waiting))
		}
	}
	if want != next {
		t.Errorf("flushed %d parts of %d", want, next)
	}
}

// eventually waits for what only another goroutine can bring about.
func eventually(t testing.TB, holds func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatal("it does not come about")
		case <-tick.C:
		}
	}
}

func TestConcurrentMixedRequestsGetTheirOwnResults(t *testing.T) {
	t.Parallel()
	store := newFake()
	store.rejecting(map[string]error{"bad": partition.ErrUnavailable})
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
