package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// replicaTimeout is how long a produce waits for its replicas. It is less than
// readTimeout, so that WAIT answers before the client gives up.
const replicaTimeout = time.Second

// MaxReplicas is the upper bound of Config.Replicas. A larger number is most likely a
// typing error.
const MaxReplicas = 5

// RunDurably is Run, and also waits for Config.Replicas replicas. Calls that fewer
// replicas confirmed have an unknown outcome, because they did run. WAIT covers only
// its own connection, so it follows the scripts in their pipeline. On a cluster each
// master gets a pipeline of its own, because WAIT has no key that would route it.
func (b *Backend) RunDurably(ctx context.Context, client redis.UniversalClient, calls []*Call) {
	b.apart(client, calls, func(b *Backend, client redis.UniversalClient, calls []*Call) {
		b.runDurably(ctx, client, calls)
	})
}

func (b *Backend) runDurably(ctx context.Context, client redis.UniversalClient, calls []*Call) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok || b.replicas == 0 {
		b.runWith(ctx, client, calls, b.replicas)
		return
	}
	byNode := map[*redis.Client][]*Call{}
	for _, c := range calls {
		key, _ := c.Args[firstKey].(string) // the first key of every call is of its shard
		node, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			_, c.Err = c.command(ctx), Classify(err)
			b.metrics.failed(c.Err)
			continue
		}
		byNode[node] = append(byNode[node], c)
	}
	var running sync.WaitGroup
	for node, part := range byNode {
		running.Go(func() { b.runWith(ctx, node, part, b.replicas) })
	}
	running.Wait()
	for _, c := range calls {
		if movedAway(c.Err) {
			cluster.ReloadState(ctx) // the client of one node follows no redirect; the next produce needs the new map
			return
		}
	}
}

// movedAway is true for an error after which the slot map may be wrong: another master
// has the slot, or the known one does not answer.
func movedAway(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return err != nil && !errors.Is(err, ErrUnconfirmed)
	}
	return strings.HasPrefix(answer.Error(), "MOVED ") || strings.HasPrefix(answer.Error(), "CLUSTERDOWN ")
}

// awaitReplicas adds a WAIT to a pipeline of scripts.
func awaitReplicas(ctx context.Context, pipe redis.Pipeliner, replicas int) *redis.Cmd {
	maxWait := replicaTimeout
	if end, ok := ctx.Deadline(); ok {
		maxWait = min(maxWait, time.Until(end)*3/4)
	}
	return pipe.Do(ctx, "wait", replicas, max(1, maxWait.Milliseconds())) // 0 would wait for ever
}

// unconfirmed is nil when enough replicas have confirmed what the pipeline wrote.
func unconfirmed(wait *redis.Cmd, replicas int) error {
	n, err := wait.Int()
	if err != nil {
		return &storeError{ErrUnknown, fmt.Errorf("%w: %w", ErrUnconfirmed, err)}
	} else if n < replicas {
		return &storeError{ErrUnknown, fmt.Errorf("%w: %d of %d", ErrUnconfirmed, n, replicas)}
	}
	return nil
}
