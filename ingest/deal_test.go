package ingest

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// Nobody waits for an answer, so that parts of a partition are in several flushes and wait in lanes while
// these change.
func TestPartsKeepTheirOrderWhileTheirLanesChange(t *testing.T) {
	t.Parallel()
	c := newClusterLanes(t)
	const clients, partitions, parts = 4, 6, 400
	var producing sync.WaitGroup
	half := make(chan struct{}, clients)
	for client := range clients {
		producing.Go(func() {
			var results []<-chan error
			for i := range parts {
				if i == parts/2 {
					half <- struct{}{}
				}
				for p := range partitions {
					results = append(results, c.put(fmt.Sprint("c", client, "p", p), strconv.Itoa(i)))
				}
				if i%20 == 0 { // else all are put before the shards have changed
					last := len(results) - 1
					if err := <-results[last]; err != nil {
						t.Errorf("rejected: %v", err)
					}
					results = results[:last]
				}
			}
			for _, result := range results {
				if err := <-result; err != nil {
					t.Errorf("rejected: %v", err)
				}
			}
		})
	}
	<-half
	if _, err := c.store.Reshard(t.Context(), c.ns, partition.ReshardRequest{Shards: 5}); err != nil {
		t.Fatal(err)
	}
	producing.Wait()
	redistest.Until(t, 20*time.Second, "the lanes changed", func() bool { return !c.store.ZonesMoved() })
	next := map[string]int{}
	redistest.Until(t, time.Minute, "all is delivered", func() bool {
		numbers, _ := c.ns.OpenShards()
		for _, number := range numbers {
			due, _, err := c.store.Due(t.Context(), c.ns, number, 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range due {
				for _, claim := range c.store.Claim(t.Context(), []partition.ClaimRequest{{Namespace: c.ns, Partition: d.Partition, MaxBatches: 8, Shard: number}}, time.Minute) {
					if claim.Err != nil {
						t.Fatal(claim.Err)
					}
					if claim.Lease == nil {
						continue
					}
					l := claim.Lease
					for _, e := range l.Entries {
						if string(e.Payload) != strconv.Itoa(next[d.Partition]) {
							t.Fatalf("%s: got %s, want %d", d.Partition, e.Payload, next[d.Partition])
						}
						next[d.Partition]++
					}
					c.store.Commit(t.Context(), []*partition.Commit{{Lease: l, Lo: l.From, Hi: l.To, Delivered: len(l.Entries)}})
				}
			}
		}
		done := 0
		for _, n := range next {
			done += n
		}
		return done == clients*partitions*parts
	})
	if shard := c.ns.ShardOf("c0p0"); shard < clusterShards {
		t.Errorf("new entries still go to shard %d", shard)
	}
}

type moving struct{ *fakeStore }

func (moving) Zones() int       { return 2 }
func (moving) ZonesMoved() bool { return true }
func (moving) DealZones()       {}

// One request, one partition, more bytes than a part holds: two parts of the same time of arrival.
func TestPartsOfARequestKeepTheirOrderWhileTheirLanesChange(t *testing.T) {
	t.Parallel()
	store := moving{newFake()}
	m, err := newMetrics(prometheus.NewRegistry(), nil, none, none, none)
	if err != nil {
		t.Fatal(err)
	}
	ls := newLanes(DefaultConfig(), store, m, zap.NewNop())
	r := &request{namespace: store.namespaces["default"], done: make(chan struct{}, 1)}
	now := time.Now()
	a := &part{request: r, name: "default/p", queued: now, bytes: largePart, count: 1}
	b := &part{request: r, name: "default/p", queued: now, bytes: 1, count: 2}
	order := func(what string, wantFirst *part) {
		t.Helper()
		ls.deal(store)
		l := ls.laneOf(a)
		got := l.takeAll()
		if len(got) != 2 {
			t.Fatalf("%s: %d parts", what, len(got))
		}
		if got[0] != wantFirst {
			t.Errorf("%s: the second part of the request comes first", what)
		}
	}
	l := ls.laneOf(a)
	// the first went on to the lane for large ones, the second waits for a flush still
	l.large.queue = append(l.large.queue, a)
	l.queue = append(l.queue, b)
	order("first in the large lane, second in the other", a)
	// the first was taken over by the large lane, the second came to it later
	l.large.waiting.Push("default", a)
	l.large.queue = append(l.large.queue, b)
	order("both in the large lane", a)
}
