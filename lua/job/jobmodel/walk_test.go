package jobmodel_test

import (
	"flag"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillway-io/spillway/lua/job/jobmodel"
)

var (
	walks     = flag.Int64("walks", 3000, "random walks of the model of queues")
	firstWalk = flag.Int64("walks.from", 0, "seed of the first walk")
	walkSteps = flag.Int("walks.steps", 250, "steps of a walk")
	traceWalk = flag.Bool("walks.trace", false, "print each call of the walks")
)

func modelWorld(seed int64, setting jobmodel.Setting) *jobmodel.World {
	return jobmodel.NewWorld(seed, setting, func(int) (jobmodel.Store, *jobmodel.Shard) {
		m := jobmodel.NewShard(jobmodel.Start, jobmodel.Keeps, setting.Bug)
		return m, m
	})
}

// Each walk is a world of processes, clients and faults around the model; it wants
// every promise of lua/DESIGN.md kept after each call.
func TestWalksKeepEveryPromise(t *testing.T) {
	t.Parallel()
	var next atomic.Int64
	var mu sync.Mutex
	count := map[string]int{}
	next.Store(*firstWalk)
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for !t.Failed() {
				seed := next.Add(1) - 1
				if seed >= *firstWalk+*walks {
					return
				}
				w := modelWorld(seed, jobmodel.Setting{})
				if *traceWalk {
					w.Trace = t.Logf
				}
				if err := w.Walk(*walkSteps); err != nil {
					t.Errorf("walk %d: %v", seed, err)
				}
				mu.Lock()
				for what, n := range w.Count {
					count[what] += n
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Log(jobmodel.Summary(count))
	if *walks < 1000 {
		return
	}
	for _, what := range []string{"revert", "given back", "waiting", "crash", "deaf", "clock back", "vanished", "found", "purge", "respawn", "claim not run", "publish unknown"} {
		if count[what] == 0 {
			t.Errorf("no walk had this: %s; there were %v", what, slices.Sorted(maps.Keys(count)))
		}
	}
}

// A walk with a mistake in it must break a promise: otherwise the walks prove less
// than they seem to.
func TestWalksFindEverySeededBug(t *testing.T) {
	t.Parallel()
	for bug, waiting := range jobmodel.Bugs {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			for seed := range int64(5000) {
				if err := modelWorld(seed, jobmodel.Setting{Bug: bug, Waiting: waiting}).Walk(250); err != nil {
					t.Logf("walk %d: %v", seed, err)
					return
				}
			}
			t.Error("5,000 walks kept every promise")
		})
	}
}
