package ingest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-io/spillway/partition"
)

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
