package control

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

// sweep deletes all keys of a closed namespace, so that the next of its name begins with nothing: no
// idempotency keys that answer with jobs that are gone, no traces, no pauses, no totals. Ledgers
// stay closed, and know how many they are: see renumber. It looks at every key of the servers.
func (c *Control) sweep(ctx context.Context, n *Namespace) error {
	b, ledgers, err := c.ledgers(ctx, n)
	if err != nil {
		return err
	}
	err = backend.EachMaster(ctx, b.Background, func(ctx context.Context, client *redis.Client) error {
		keys := client.Scan(ctx, 0, c.prefix+":{"+n.Name+".*", 1000).Iterator()
		var own []string
		for keys.Next(ctx) {
			key := keys.Val() // may be of a namespace whose name goes on after a dot
			of := func(ledger string) bool { return strings.HasPrefix(key, strings.TrimSuffix(ledger, "ledger")) }
			if slices.ContainsFunc(ledgers, of) && !slices.Contains(ledgers, key) {
				own = append(own, key)
			}
		}
		if err := keys.Err(); err != nil {
			return err
		}
		for batch := range slices.Chunk(own, 256) {
			pipe := client.Pipeline()
			for _, key := range batch {
				pipe.Del(ctx, key)
			}
			if _, err := pipe.Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	for _, ledger := range ledgers {
		if err == nil {
			err = sweepLedger(ctx, b.Background, ledger)
		}
	}
	return backend.Classify(err)
}

// sweepLedger leaves of a ledger that it is closed, and how many there are.
func sweepLedger(ctx context.Context, c redis.Cmdable, ledger string) error {
	fields, err := c.HGetAll(ctx, ledger).Result()
	delete(fields, "closed")
	delete(fields, "shards")
	if err != nil || len(fields) == 0 {
		return err
	}
	return c.HDel(ctx, ledger, slices.Collect(maps.Keys(fields))...).Err()
}

// renumber lets a namespace have another number of shards than the one of its name that was swept.
func (c *Control) renumber(ctx context.Context, b *backend.Backend, n *Namespace) error {
	first := space.Ledgers(c.prefix, n.Name, 1)[0]
	fields, err := b.Background.HMGet(ctx, first, "shards", "format").Result()
	if err != nil || fields[0] == nil || fields[1] != nil {
		return backend.Classify(err)
	}
	shards, err := space.ShardsFor(ctx, b, n.Policy.Shards)
	if err == nil {
		err = b.Background.HSet(ctx, first, "shards", shards).Err()
	}
	return backend.Classify(err)
}
