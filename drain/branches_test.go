package drain

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/branches"
	"github.com/spillway-io/spillway/drain/sink/fallback"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
)

// awayBranch is a store in which the namespace b is away most of the time: groups do not
// run, or run and their answer is lost.
type awayBranch struct {
	*partition.Store

	mu     sync.Mutex
	rand   *rand.Rand
	back   bool
	missed int
}

func (s *awayBranch) Produce(ctx context.Context, groups []*partition.Group) {
	s.mu.Lock()
	fate := s.rand.IntN(8)
	if s.back {
		fate = 0
	} else {
		s.missed++
	}
	s.mu.Unlock()
	var run, lost []*partition.Group
	for _, g := range groups {
		switch {
		case g.Namespace.Name == "a" || fate == 0:
			run = append(run, g)
		case fate == 1:
			run, lost = append(run, g), append(lost, g)
		default:
			g.Err = partition.ErrUnavailable
		}
	}
	s.Store.Produce(ctx, run)
	for _, g := range lost {
		g.Err = partition.ErrUnknown
	}
}

// Every branch has each entry once, whatever a batch is when it comes again, and whatever
// a tier before the branches took of it meanwhile.
func TestEveryBranchHasEachEntryOnce(t *testing.T) {
	t.Parallel()
	for name, rejects := range map[string]func(*rand.Rand) bool{
		"no fallback":                      nil,
		"behind a tier that rejects all":   func(*rand.Rand) bool { return true },
		"behind a tier that rejects some":  func(r *rand.Rand) bool { return r.IntN(3) > 0 },
		"behind a tier that rejects a few": func(r *rand.Rand) bool { return r.IntN(10) == 0 },
		"behind a tier whose answers vary": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			random := rand.New(rand.NewPCG(1, 2))
			var mu sync.Mutex
			taken := map[string]bool{} // by the first tier
			first := &fakeSink{now: func() int64 { return 0 }, write: func(_ context.Context, batches []*sink.Batch) error {
				mu.Lock()
				defer mu.Unlock()
				failed, all, odds := &sink.BatchError{}, rejects, random.IntN(3)
				if name == "behind a tier whose answers vary" {
					all = func(r *rand.Rand) bool { return r.IntN(4) < 2*odds }
				}
				for i, b := range batches {
					for j, e := range b.Entries {
						if all(random) {
							failed.Fail(i, j, sink.Permanent(errDown))
						} else {
							taken[string(e.Payload)] = true
						}
					}
				}
				if len(failed.Failed) == 0 {
					return nil
				}
				return failed
			}}
			const partitions, perRound = 3, 150
			rounds := []int{128, 7, 1, 100, 128, 50, 64}[:size(7, 3)]
			for i, batch := range rounds {
				parent := partition.DefaultPolicy()
				parent.Batch, parent.Linger = batch, 10*time.Millisecond
				store, err := partition.Open(partition.Config{
					Backend: backendtest.Open(t, backend.Config{URL: server.URL()}), Prefix: "sw",
					Namespaces: map[string]partition.Policy{"parent": parent, "a": partition.DefaultPolicy(), "b": partition.DefaultPolicy()},
				}, prometheus.NewRegistry(), zap.NewNop())
				if err != nil {
					t.Fatal(err)
				}
				away := &awayBranch{Store: store, rand: rand.New(rand.NewPCG(3, uint64(i))), back: i == len(rounds)-1}
				made, err := branches.New(&url.URL{Scheme: "namespaces", Host: "a,b"})
				if err != nil {
					t.Fatal(err)
				}
				if err := made.(*branches.Sink).Use(away); err != nil {
					t.Fatal(err)
				}
				if name != "no fallback" {
					cfg := fallback.Config{MaxAge: parent.MaxAge, BackoffBase: time.Millisecond, BackoffMax: 5 * time.Millisecond}
					made = fallback.New(cfg, []fallback.Tier{{Sink: first, Label: "first:"}, {Sink: made, Label: "branches:"}}, zap.NewNop())
				}
				var groups []*partition.Group
				for p := range partitions {
					for e := range perRound {
						line := partition.AppendEntry(nil, time.Now().UnixMilli(), nil, fmt.Appendf(nil, "%d.%d.%d", p, i, e))
						groups = append(groups, &partition.Group{Namespace: store.Namespace("parent"), Partition: fmt.Sprint("p", p), Entries: [][]byte{line}})
					}
				}
				store.Produce(t.Context(), groups)
				cfg := DefaultConfig()
				cfg.Poll, cfg.BackoffBase, cfg.BackoffMax = 10*time.Millisecond, time.Millisecond, 5*time.Millisecond
				d, err := New(cfg, store, []Target{{Namespace: store.Namespace("parent"), Sink: made, Label: "branches:"}}, prometheus.NewRegistry(), zap.NewNop())
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				redistest.Until(t, 30*time.Second, "the branch was missed, or all is delivered", func() bool {
					away.mu.Lock()
					defer away.mu.Unlock()
					o, err := store.Overview(t.Context(), store.Namespace("parent"))
					return err == nil && (away.missed >= 20 || o.Ledger.Buffered == 0)
				})
				if err := errors.Join(d.Stop(t.Context()), store.Close()); err != nil {
					t.Fatal(err)
				}
			}
			client := server.Client()
			times := map[string]map[string]int{"a": {}, "b": {}}
			for branch, seen := range times {
				for p := range partitions {
					keys, err := client.Keys(t.Context(), fmt.Sprintf("sw:{%s.*}:q:p%d", branch, p)).Result()
					if err != nil || len(keys) != 1 {
						t.Fatalf("%v, %v", keys, err)
					}
					stored, err := client.LRange(t.Context(), keys[0], 0, -1).Result()
					if err != nil {
						t.Fatal(err)
					}
					for _, line := range stored {
						seen[line[strings.LastIndexByte(line, ' ')+1:]]++
					}
				}
			}
			twice, missing := 0, 0
			for p := range partitions {
				for i := range rounds {
					for e := range perRound {
						id := fmt.Sprintf("%d.%d.%d", p, i, e)
						for _, seen := range times {
							if seen[id] > 1 {
								twice++
							} else if seen[id] == 0 && !taken[id] {
								missing++
							}
						}
					}
				}
			}
			if twice+missing > 0 {
				t.Errorf("of %d entries in each branch %d came twice and %d are missing", partitions*perRound*len(rounds), twice, missing)
			}
		})
	}
}
