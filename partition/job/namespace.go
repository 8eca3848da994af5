package job

import (
	"maps"

	"github.com/spillway-io/spillway/partition"
)

// Namespace is a tenant of a Store: queues under one policy. It never changes. A new
// policy is a new Namespace of the same name.
type Namespace struct {
	Name   string
	Policy Policy

	shards    []*shard
	single    [][]int          // the shard i alone
	spread    map[string][]int // of queues over several shards
	seed      uint64           // of hash
	maxJobs   int64            // of a shard
	maxQueues int64            // of a shard
}

// shard is what all generations of a namespace share about one of its shards.
type shard struct {
	shardKeys
	number int
}

// NewNamespace makes a namespace outside of a Store, for tests of what stands on one.
func NewNamespace(prefix, name string, policy Policy) (*Namespace, error) {
	return newNamespace(prefix, name, policy, nil)
}

// newNamespace makes a namespace. before is the same namespace under the policy before.
func newNamespace(prefix, name string, policy Policy, before *Namespace) (*Namespace, error) {
	if !partition.ValidNamespace(name) {
		return nil, &partition.FieldError{Field: "namespaces", Value: name, Want: "a name of 1 to 64 letters, digits, '.', '_' or '-' that starts with a letter or digit"}
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
	}
	for i := range policy.Shards {
		n.single = append(n.single, []int{i})
	}
	if before != nil && len(before.shards) == policy.Shards {
		n.shards = before.shards
	} else {
		for i := range policy.Shards {
			n.shards = append(n.shards, newShard(prefix, name, i))
		}
	}
	for queue, k := range policy.Spread {
		for i := range k {
			n.spread[queue] = append(n.spread[queue], (n.firstShard(queue)+i)%policy.Shards)
		}
	}
	return n, nil
}

// Shards is where jobs of a queue may be, each once. The caller must not change it.
func (n *Namespace) Shards(queue string) []int {
	if s, ok := n.spread[queue]; ok {
		return s
	}
	return n.single[n.firstShard(queue)]
}

// firstShard is FNV-1a of the queue's name, modulo the number of shards. It is part of the
// stored format.
func (n *Namespace) firstShard(queue string) int {
	if len(n.shards) <= 1 {
		return 0
	}
	h := uint32(2166136261)
	for i := range len(queue) {
		h = (h ^ uint32(queue[i])) * 16777619
	}
	return int(h % uint32(len(n.shards))) // #nosec G115 -- shards are 1 to 1024
}

// keepsDead reports whether jobs of a queue become dead letters.
func (n *Namespace) keepsDead(queue string) bool { return !n.Policy.DropDead && !IsReplyQueue(queue) }
