package proc

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	slots     = 16384
	clustered = 2 * time.Minute // how long a cluster may take to be one
)

// FormCluster makes a cluster of servers that serve no slot yet: all slots are dealt evenly to the
// masters, and replicas[i] follows masters[i]. It waits until each says that all slots are served
// and that its replica is in sync, at most 30 s.
func FormCluster(ctx context.Context, masters, replicas []*redis.Client) error {
	all := slices.Concat(masters, replicas)
	host, port, _ := net.SplitHostPort(masters[0].Options().Addr)
	for i, c := range all {
		err := c.Do(ctx, "cluster", "set-config-epoch", i+1).Err()
		if i < len(masters) && err == nil {
			n := len(masters)
			err = c.Do(ctx, "cluster", "addslotsrange", i*slots/n, (i+1)*slots/n-1).Err()
		}
		if err != nil {
			return err
		}
	}
	met := time.Time{}
	for _, c := range all {
		if err := await(ctx, "all nodes know each other", func() bool {
			// A node that stands still for a while forgets a handshake.
			if time.Since(met) > 10*time.Second {
				for _, other := range all[1:] {
					_ = other.ClusterMeet(ctx, host, port).Err()
				}
				met = time.Now()
			}
			return strings.Count(c.ClusterNodes(ctx).Val(), " connected") == len(all)
		}); err != nil {
			return err
		}
	}
	for i, c := range replicas {
		if err := c.ClusterReplicate(ctx, masters[i].ClusterMyID(ctx).Val()).Err(); err != nil {
			return err
		}
	}
	for i, c := range all {
		if err := await(ctx, "all slots are served and replicated", func() bool {
			state := c.ClusterInfo(ctx).Val()
			return strings.Contains(state, "cluster_state:ok") &&
				strings.Contains(state, fmt.Sprintf("cluster_slots_ok:%d", slots)) &&
				strings.Count(c.ClusterNodes(ctx).Val(), "slave") == len(replicas) &&
				(i < len(masters) || strings.Contains(c.Info(ctx, "replication").Val(), "master_link_status:up"))
		}); err != nil {
			return err
		}
	}
	return nil
}

// await asks ok again and again until it is true. Its error says that this took longer than healthy.
func await(ctx context.Context, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, clustered)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("still not: %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// MoveSlot moves a slot from the source, which serves it, to the target, key by key. After an error
// part of it may be moved.
func MoveSlot(ctx context.Context, slot int64, source, target *redis.Client) error {
	id := target.ClusterMyID(ctx).Val()
	if err := target.Do(ctx, "cluster", "setslot", slot, "importing", source.ClusterMyID(ctx).Val()).Err(); err != nil {
		return err
	}
	if err := source.Do(ctx, "cluster", "setslot", slot, "migrating", id).Err(); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(target.Options().Addr)
	for {
		keys, err := source.ClusterGetKeysInSlot(ctx, int(slot), 1).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		if err := source.Do(ctx, "migrate", host, port, keys[0], 0, 5000).Err(); err != nil {
			return err
		}
	}
	for _, node := range []*redis.Client{target, source} {
		if err := node.Do(ctx, "cluster", "setslot", slot, "node", id).Err(); err != nil {
			return err
		}
	}
	return nil
}
