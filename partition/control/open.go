package control

import (
	"context"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

// Named are the namespaces of a file, which take jobs also where one of that name was deleted at run
// time, here or by a process that has another file. They belong to one configuration, and are not
// safe for concurrent use.
type Named struct {
	control *Control
	in      map[string]string // pool by namespace
	pools   Pools
	opened  map[string]bool // pools
}

// Named are those of a file: in has the pool of each of its namespaces.
func (c *Control) Named(in map[string]string, pools Pools) *Named {
	return &Named{control: c, in: in, pools: pools, opened: map[string]bool{}}
}

// Open lets publish store jobs in them. Each pool takes two round trips, once; where there is an
// error, the next call tries again.
func (n *Named) Open(ctx context.Context) {
	for pool, b := range n.pools {
		if !n.opened[pool] {
			n.opened[pool] = n.open(ctx, pool, b) == nil
		}
	}
}

func (n *Named) open(ctx context.Context, pool string, b *backend.Backend) error {
	asks := map[string]shardsAsk{}
	asking := b.Background.Pipeline()
	for name, at := range n.in {
		if at == pool {
			asks[name] = askShards(ctx, asking, n.control.prefix, name)
		}
	}
	if len(asks) == 0 {
		return nil
	}
	if _, err := asking.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	opening := b.Background.Pipeline()
	for name, ask := range asks {
		if shards, _ := strconv.Atoi(ask.cmd.Val()); shards >= 1 { // else it was never used
			for _, ledger := range space.Ledgers(n.control.prefix, name, min(shards, space.MaxShards)) {
				opening.HDel(ctx, ledger, "closed")
			}
		}
	}
	_, err := opening.Exec(ctx)
	return err
}

// A shardsAsk asks the store how many shards a namespace has.
type shardsAsk struct{ cmd *redis.StringCmd }

// askShards adds what is asked to a pipeline.
func askShards(ctx context.Context, pipe redis.Pipeliner, prefix, name string) shardsAsk {
	return shardsAsk{pipe.HGet(ctx, space.Ledgers(prefix, name, 1)[0], "shards")}
}

// shards is how many there are, once the pipeline was run; where the namespace was never used, how
// many it would get.
func (a shardsAsk) shards(ctx context.Context, b *backend.Backend, wanted int) (int, error) {
	if err := a.cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return 0, backend.Classify(err)
	}
	if n, _ := strconv.Atoi(a.cmd.Val()); n >= 1 {
		return min(n, space.MaxShards), nil
	}
	return space.ShardsFor(ctx, b, wanted)
}
