package backend

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// newCluster is a client of a cluster that asks for its slot map when a server cannot be
// reached, because another one may have its place. By itself it asks once a minute, and sends
// pipelines to the server that is gone until then.
func newCluster(o *redis.ClusterOptions) *redis.ClusterClient {
	cluster := redis.NewClusterClient(o)
	cluster.OnNewNode(func(node *redis.Client) { node.AddHook(mapHook{cluster}) })
	return cluster
}

// mapHook is a hook of go-redis.
type mapHook struct{ cluster *redis.ClusterClient }

func (h mapHook) ended(ctx context.Context, err error) error {
	if err != nil && reachability(Classify(err)) == unreached {
		h.cluster.ReloadState(ctx)
	}
	return err
}

func (h mapHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h mapHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h.ended(ctx, next(ctx, cmd)) }
}

func (h mapHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h.ended(ctx, next(ctx, cmds)) }
}

// SlotsOfMasters are the hash slots of each master of a cluster, as ranges of a first and a last
// slot; masters without slots are left out. nil: the store is no cluster.
func (b *Backend) SlotsOfMasters(ctx context.Context) ([][][2]int, error) {
	if !b.cluster {
		return nil, nil
	}
	slots, err := b.Background.ClusterSlots(ctx).Result()
	if err != nil {
		return nil, Classify(err)
	}
	at := map[string]int{}
	var masters [][][2]int
	for _, s := range slots {
		if len(s.Nodes) == 0 {
			continue
		}
		i, known := at[s.Nodes[0].Addr]
		if !known {
			i = len(masters)
			at[s.Nodes[0].Addr] = i
			masters = append(masters, nil)
		}
		masters[i] = append(masters[i], [2]int{s.Start, s.End})
	}
	return masters, nil
}

// slotMapFor is how long Busiest believes a slot map: what it says is for people.
const slotMapFor = 5 * time.Second

// A slotMap is what a cluster last said of its masters' slots.
type slotMap struct {
	mu      sync.Mutex
	masters [][][2]int
	asked   time.Time
}

// Busiest is how many of keys the master with the most of them has, and how many masters a cluster
// has; 0 and 0 where the store is no cluster or has not said.
func (b *Backend) Busiest(ctx context.Context, keys []string) (most, masters int) {
	if !b.cluster {
		return 0, 0
	}
	b.slots.mu.Lock()
	defer b.slots.mu.Unlock()
	if time.Since(b.slots.asked) > slotMapFor {
		asking, cancel := context.WithTimeout(ctx, mapTimeout)
		defer cancel()
		if now, err := b.SlotsOfMasters(asking); err == nil {
			b.slots.masters = now
		}
		b.slots.asked = time.Now()
	}
	for _, ranges := range b.slots.masters {
		n := 0
		for _, key := range keys {
			slot := Slot(key)
			if slices.ContainsFunc(ranges, func(r [2]int) bool { return r[0] <= slot && slot <= r[1] }) {
				n++
			}
		}
		most = max(most, n)
	}
	return most, len(b.slots.masters)
}
