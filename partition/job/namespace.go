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
	TTR    time.Duration // lease of a claim that says none, where no rule does; 0: a minute

	*home
	seed   uint64 // of hash
	traces bool   // some queue has any
}

// home is what all generations of a namespace share.
type home struct{ *space.Home }

// shard is one shard of a namespace.
type shard struct {
	shardKeys
	args   sharedArgs
	ends   backend.Spare // what scripts need where the ends of jobs or of leases set something off
	look   atomic.Int64  // ms on the store's clock when the promoter looks at it next
	told   atomic.Int64  // time of its server as the promoter read it last, ms; 0: not yet
	looked atomic.Int64  // ms since the Store was opened when it looked last: the store's clock may step back

	schedules scheduleTotals
	trace     traced
	// answer is the length of the last answer to a claim that brought jobs, in bytes: the
	// initial capacity for the next one.
	answer atomic.Int64
}

// sharedArgs are keys of the shard as arguments of calls: made once, as each would be an
// allocation.
type sharedArgs struct{ ledger, lease, attempts, queues, delay, tombstones, channel, paused, taken any }

// newShard makes what the store keeps of a shard, once.
func newShard(at *space.Shard) any {
	if at.Own != nil {
		return at.Own
	}
	k := newShardKeys(at)
	return &shard{
		shardKeys: k,
		ends: backend.Spare{Keys: []any{
			k.onEnd,
			k.states,
			k.ready(outbox),
			k.jobs(outbox),
			k.slots,
		}},
		args: sharedArgs{k.Ledger, k.lease, k.attempts, k.queues, k.delay, k.tombstones, k.channel,
			k.paused, k.taken},
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
		return nil, backend.Wrong("namespaces", name, "a name of 1 to 64 letters, digits, '.', '_' or '-' that starts with a letter or digit")
	}
	if err := policy.Validate(); err != nil {
		return nil, err
	}
	policy.Spread = maps.Clone(policy.Spread)
	n := &Namespace{
		Name: name, Policy: policy, seed: seedOf(name),
		traces: policy.MaxTraces > 0 &&
			slices.ContainsFunc(policy.Rules, func(r Rule) bool { return r.KeepTrace > 0 }),
	}
	if before != nil && before.Fits(policy.Shards) {
		n.home = before.home
	} else { // its Check says what is wrong with another number of shards
		n.home = &home{Home: space.NewHome(prefix, name, policy.Shards, newShard)}
	}
	return n, nil
}

// keeps is 1 where jobs of a queue become dead letters, else 0.
func (n *Namespace) keeps(queue string) int64 {
	if n.Policy.DropDead || IsReplyQueue(queue) {
		return 0
	}
	return 1
}

// ZoneOf is the zone of a shard, 0 to Store.Zones()-1. What is sent together should be of
// one zone: its shards are most likely on one master of a Redis Cluster.
func (n *Namespace) ZoneOf(shard int) int { return n.shardAt(shard).Zone }

// Serves reports whether the namespace has this queue: one of PHP's has those that its rules name.
func (n *Namespace) Serves(queue string) bool {
	return !n.PHP || slices.ContainsFunc(n.Policy.Rules, func(r Rule) bool { return r.Match.Matches(queue) })
}
