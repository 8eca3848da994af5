package backend

import (
	"context"

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

// Masters is how many masters of a cluster have slots; 0: the store is no cluster.
func (b *Backend) Masters(ctx context.Context) (n int, err error) {
	if !b.cluster {
		return 0, nil
	}
	slots, err := b.Background.ClusterSlots(ctx).Result()
	if err != nil {
		return 0, Classify(err)
	}
	masters := map[string]bool{}
	for _, s := range slots {
		if len(s.Nodes) > 0 {
			masters[s.Nodes[0].Addr] = true
		}
	}
	return len(masters), nil
}
