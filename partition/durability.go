package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// replicaTimeout is how long a produce waits at most for its replicas. It is
// less than readTimeout, so that the server answers, not the clock.
const replicaTimeout = time.Second

// MaxReplicas bounds Config.Replicas: beyond what anybody runs, and below what
// is a slip of the pen.
const MaxReplicas = 5

// runDurably is run, and afterwards no call has a nil err whose writes fewer
// than Config.Replicas replicas have confirmed: those are unknown, for they did
// run. WAIT speaks for its own connection only, so it follows the scripts in
// their pipeline; on a cluster each master has a pipeline of its own, because
// WAIT has no key that would lead it there.
func (s *Store) runDurably(ctx context.Context, client redis.UniversalClient, calls []*call) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		s.runWith(ctx, client, calls, s.replicas)
		return
	}
	byNode := map[*redis.Client][]*call{}
	for _, c := range calls {
		key, _ := c.args[firstKey].(string) // every call begins with a key of its shard
		node, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			_, c.err = c.command(ctx), classify(err)
			s.metrics.failed(c.err)
			continue
		}
		byNode[node] = append(byNode[node], c)
	}
	var running sync.WaitGroup
	for node, part := range byNode {
		running.Go(func() { s.runWith(ctx, node, part, s.replicas) })
	}
	running.Wait()
	for _, c := range calls {
		if movedAway(c.err) {
			cluster.ReloadState(ctx) // one node's client follows no redirect: the next produce goes there
			return
		}
	}
}

// movedAway is true for an error after which the map of the cluster is in doubt:
// another master has the slot, or the one that we know does not answer.
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
	return pipe.Do(ctx, "wait", replicas, max(1, maxWait.Milliseconds())) // 0 would be for ever
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
