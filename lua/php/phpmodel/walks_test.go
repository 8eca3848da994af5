package phpmodel

import (
	"flag"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	walks     = flag.Int64("walks", 500, "random walks of the model of PHP's queues")
	firstWalk = flag.Int64("walks.from", 0, "seed of the first walk")
	walkSteps = flag.Int("walks.steps", 250, "steps of a walk")
)

func flavorOf(seed int64) flavor { return flavors[seed%3] }

func TestWalksKeepEveryInvariant(t *testing.T) {
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
				q := newQueue(flavorOf(seed), "")
				w := newWorld(seed, q, q, "")
				if err := w.walk(*walkSteps); err != nil {
					t.Errorf("walk %d of %s: %v", seed, q.flavor.name, err)
				}
				mu.Lock()
				for what, n := range w.count {
					count[what] += n
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Log(count)
	for _, what := range []string{"claimed", "reverted", "request lost", "answer lost", "process died", "clock back", "purged", "read", "respawned",
		"dead", "published again", "PHP done", "PHP forgot", "PHP doubled", "PHP collapsed twins", "PHP lost when it died", "PHP lost what it cannot read"} {
		if count[what] == 0 && *walks >= 500 {
			t.Errorf("no walk had this: %s", what)
		}
	}
}
