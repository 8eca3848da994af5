package job

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

// Namespace is a tenant of a Store: queues under one policy. It never changes. A new
// policy is a new Namespace of the same name.
type Namespace struct {
	Name   string
	Policy Policy
	PHP    bool          // its queues are those of a PHP application: see partition/php
	TTR    time.Duration // lease of a claim that says none; 0: a minute
	// Lease is TTR, where queues have their own; nil: none has.
	Lease func(queues []string) time.Duration

	*home
	single       [][]int          // the shard i alone
	spread       map[string][]int // of queues over several shards
	seed         uint64           // of hash
	maxJobs      int64            // of a shard
	maxQueues    int64            // of a shard
	maxKeys      int64            // of a shard
	maxSchedules int64            // of a shard
	maxTraces    int64            // of a shard
	traces       bool             // some queue has any
}

// home is what all generations of a namespace share.
type home struct {
	*space.Home
	shards []*shard
	absent atomic.Int64 // when a flush found last that it cannot be checked; Unix ns
}

// shard is one shard of a namespace.
type shard struct {
	shardKeys
	args   sharedArgs
	ends   backend.Spare // what scripts need where the ends of jobs set something off
	look   atomic.Int64  // ms on the store's clock when the promoter looks at it next
	looked atomic.Int64  // ms since the Store was opened when it looked last: the store's clock may step back

	schedules scheduleTotals
	trace     traced
	// answer is the length of the last answer to a claim that brought jobs, in bytes: the
	// initial capacity for the next one.
	answer atomic.Int64
}

// sharedArgs are keys of the shard as arguments of calls: made once, as each would be an
// allocation.
type sharedArgs struct{ ledger, lease, attempts, queues, delay, tombstones, channel any }

func newShard(at *space.Shard) *shard {
	k := newShardKeys(at)
	return &shard{
		shardKeys: k,
		ends:      backend.Spare{Keys: []any{k.onEnd, k.states, k.ready(outbox), k.jobs(outbox)}},
		args:      sharedArgs{k.Ledger, k.lease, k.attempts, k.queues, k.delay, k.tombstones, k.channel},
	}
}

// NewNamespace makes a namespace outside of a Store, for tests of what stands on one. Its
// errors are *backend.FieldError, joined.
func NewNamespace(prefix, name string, policy Policy) (*Namespace, error) {
	return newNamespace(prefix, name, policy, nil)
}

// newNamespace makes a namespace. before is the same namespace under the policy before,
// or nil.
func newNamespace(prefix, name string, policy Policy, before *Namespace) (*Namespace, error) {
	if !partition.ValidNamespace(name) {
		return nil, &backend.FieldError{Field: "namespaces", Value: name,
			Want: "a name of 1 to 64 letters, digits, '.', '_' or '-' that starts with a letter or digit"}
	}
	if err := policy.Validate(); err != nil {
		return nil, err
	}
	policy.Spread = maps.Clone(policy.Spread)
	shards := int64(policy.Shards)
	n := &Namespace{
		Name: name, Policy: policy, seed: seedOf(name), spread: map[string][]int{},
		// A script sees only its shard, so each shard gets an equal part.
		maxJobs: (policy.MaxJobs + shards - 1) / shards, maxQueues: (policy.MaxQueues + shards - 1) / shards,
		maxKeys:      (policy.MaxKeys + shards - 1) / shards,
		maxSchedules: (policy.MaxSchedules + shards - 1) / shards,
		maxTraces:    (policy.MaxTraces + shards - 1) / shards,
		traces: policy.MaxTraces > 0 &&
			slices.ContainsFunc(policy.Rules, func(r Rule) bool { return r.KeepTrace > 0 }),
	}
	if before != nil && len(before.shards) == policy.Shards {
		n.home = before.home
	} else {
		n.home = &home{Home: space.NewHome(prefix, name, policy.Shards, nil)}
		for _, at := range n.home.Shards() {
			n.shards = append(n.shards, newShard(at))
		}
	}
	for i := range policy.Shards {
		n.single = append(n.single, []int{i})
	}
	for queue, k := range policy.Spread {
		for i := range k {
			n.spread[queue] = append(n.spread[queue], (backend.ShardOf(queue, policy.Shards)+i)%policy.Shards)
		}
	}
	return n, nil
}

// Shards is where jobs of a queue may be, each once: one shard, or as many as the policy
// spreads the queue over. The caller must not change it.
func (n *Namespace) Shards(queue string) []int {
	if s, ok := n.spread[queue]; ok {
		return s
	}
	return n.single[backend.ShardOf(queue, len(n.shards))]
}

// Rest is how long this process leaves what concerns the whole namespace to others after a look
// at it; 0: it is one of the two that look all the time.
func (n *Namespace) Rest() time.Duration { return n.Home.Rest(space.Whole) }

// keeps is 1 where jobs of a queue become dead letters, else 0.
func (n *Namespace) keeps(queue string) int64 {
	if n.Policy.DropDead || IsReplyQueue(queue) {
		return 0
	}
	return 1
}

// ZoneOf is the zone of a shard, 0 to Store.Zones()-1. What is sent together should be of
// one zone: its shards are most likely on one master of a Redis Cluster.
func (n *Namespace) ZoneOf(shard int) int { return n.shard(shard).Zone }

// Serves reports whether the namespace has this queue: one of PHP's has those that its rules name.
func (n *Namespace) Serves(queue string) bool {
	return !n.PHP || slices.ContainsFunc(n.Policy.Rules, func(r Rule) bool { return r.Match.Matches(queue) })
}
