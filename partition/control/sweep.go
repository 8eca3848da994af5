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
			if slices.ContainsFunc(ledgers, func(l string) bool { return strings.HasPrefix(key, strings.TrimSuffix(l, "ledger")) }) {
				own = append(own, key)
			}
		}
		if err := keys.Err(); err != nil {
			return err
		}
		for batch := range slices.Chunk(own, 256) {
			pipe := client.Pipeline()
			for _, key := range batch {
				if !slices.Contains(ledgers, key) {
					pipe.Del(ctx, key)
					continue
				}
				fields, err := client.HGetAll(ctx, key).Result()
				if err != nil {
					return err
				}
				delete(fields, "closed")
				delete(fields, "shards")
				if len(fields) > 0 {
					pipe.HDel(ctx, key, slices.Collect(maps.Keys(fields))...)
				}
			}
			if _, err := pipe.Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return backend.Classify(err)
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
