package jobs

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/job"
)

func TestWalksOfPollsPublishersAndFaults(t *testing.T) {
	t.Parallel()
	seeds := uint64(150)
	if testing.Short() {
		seeds = 40
	}
	for seed := range seeds {
		walk(t, seed)
	}
}

func walk(t *testing.T, seed uint64) {
	policy := job.DefaultPolicy()
	policy.Shards, policy.Spread = 3, map[string]int{"c": 3}
	bubble(t, map[string]job.Policy{"mail": policy}, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		r := rand.New(rand.NewPCG(seed, 1))
		queues := []string{"a", "b", "c"}
		s.With(func() {
			s.delay, s.after = time.Duration(r.IntN(5))*time.Millisecond, time.Duration(r.IntN(5))*time.Millisecond
			faults := rand.New(rand.NewPCG(seed, 2))
			s.Fail = func(*job.Batch) error {
				if faults.IntN(12) == 0 {
					return errAway
				}
				return nil
			}
			s.lose = func() error {
				if faults.IntN(12) == 0 {
					return partition.ErrUnknown
				}
				return nil
			}
		})
		s.wakes.SetLatency(time.Duration(r.IntN(4)) * time.Millisecond)
		var delivered atomic.Int64
		var published int
		var polls sync.WaitGroup
		var leaves []*atomic.Bool
		poll := func(q []string, wait time.Duration) {
			leave := new(atomic.Bool)
			leaves = append(leaves, leave)
			polls.Go(func() {
				jobs, _ := e.Claim(&Claim{Namespace: ns, Queues: q, Count: 1 + len(q), TTR: time.Hour, Wait: wait, Revoked: leave.Load})
				delivered.Add(int64(len(jobs)))
			})
		}
		for range 120 {
			clocktest.Pass(time.Duration(r.IntN(3)) * time.Millisecond)
			switch r.IntN(6) {
			case 0, 1:
				q := append([]string(nil), queues...)
				r.Shuffle(len(q), func(i, j int) { q[i], q[j] = q[j], q[i] })
				poll(q[:1+r.IntN(3)], time.Duration(r.IntN(2000))*time.Millisecond)
			case 2, 3:
				queue := queues[r.IntN(3)]
				shards := ns.Shards(queue)
				p := &job.Publish{Namespace: ns, Queue: queue, Shard: shards[r.IntN(len(shards))], Tries: 9, Messages: make([]job.Message, 1+r.IntN(4))}
				e.Publish(p)
				if p.Err == nil {
					published += len(p.Messages)
				}
			case 4:
				if r.IntN(4) == 0 {
					s.wakes.SetDeaf(true, true)
				} else {
					s.wakes.SetDeaf(false, true)
				}
			case 5:
				if len(leaves) > 0 && r.IntN(3) == 0 {
					leaves[len(leaves)-1-r.IntN(min(5, len(leaves)))].Store(true)
					if r.IntN(2) == 0 {
						e.Refresh()
					}
				}
			}
		}
		s.With(func() { s.Fail, s.lose = nil, nil })
		s.wakes.SetDeaf(false, true)
		polls.Wait()
		clocktest.Pass(time.Minute)
		// All are asked for once more: each queue by as many as there can be.
		for range published {
			for _, q := range queues {
				poll([]string{q}, 10*time.Second)
			}
		}
		clocktest.Pass(time.Second)
		if int(delivered.Load()) != published {
			ready := 0
			for _, q := range queues {
				n, _ := s.ready(q)
				ready += n
			}
			t.Errorf("seed %d: %d of %d jobs were delivered, %d are ready", seed, delivered.Load(), published, ready)
		}
		polls.Wait()
	})
}
