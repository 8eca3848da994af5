package job

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"slices"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

// A queue is in one shard, chosen by its name, or in as many as the policy spreads it over. Jobs stay
// in theirs until they end, because their ids name it.

// shardAt is that of a number; nil: there is none, as far as this process knows.
func (h *home) shardAt(number int) *shard {
	all := h.Home.Shards()
	if number >= len(all) {
		return nil
	}
	return all[number].Own.(*shard)
}

// all are the shards of the namespace.
func (h *home) all() (list []*shard) {
	for _, at := range h.Home.Shards() {
		list = append(list, at.Own.(*shard))
	}
	return list
}

// ShardCount is how many shards the namespace has.
func (n *Namespace) ShardCount() int { return len(n.Home.Shards()) }

// alone are lists of one number each.
var alone = func() (lists [space.MaxShards][]int) {
	for i := range lists {
		lists[i] = []int{i}
	}
	return lists
}()

// Shards is where the jobs of a queue are, each once: one shard, or as many as the policy spreads
// the queue over. The caller must not change it.
func (n *Namespace) Shards(queue string) []int {
	size := n.ShardCount()
	at, k := backend.ShardOf(queue, size), min(n.Policy.Spread[queue], size)
	if k < 2 {
		return alone[at]
	}
	list := make([]int, k)
	for i := range list {
		list[i] = (at + i) % size
	}
	return list
}

// HomeOf chooses the shard of a publish. Repeats have to meet what the first one stored, so a
// key or a caller's id chooses; others have the turn that the caller gives.
func (n *Namespace) HomeOf(p *Publish, turn uint64) int {
	shards := n.Shards(p.Queue)
	if len(shards) == 1 {
		return shards[0]
	}
	if name := cmp.Or(p.CallerID, p.UniqueKey, p.Key); name != "" {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name))
		return shards[jump(h.Sum64(), len(shards))]
	}
	return shards[turn%uint64(len(shards))]
}

// jump is one of n buckets for a hash: the jump consistent hash of Lamping and Veach. One
// bucket more takes 1/(n+1) of the hashes, and all others stay where they are: a higher
// spread appends shards.
func jump(hash uint64, n int) int {
	bucket, next := 0, 0.0
	for next < float64(n) {
		bucket = int(next)
		hash = hash*2862933555777941757 + 1
		next = float64(bucket+1) * (1 << 31) / float64(hash>>33+1)
	}
	return bucket
}

// part is what a shard may have of a bound over all shards: a script sees its shard only.
func (n *Namespace) part(all int64) int64 {
	shards := int64(n.ShardCount())
	return (all + shards - 1) / shards
}

// find is the shard of a number that an id names; nil: there is none. While the process does not
// know how many shards the namespace has, that is an error: a job that lives must not be called gone.
func (n *Namespace) find(number int) (*shard, error) {
	sh := n.shardAt(number)
	if sh == nil && !n.IsFixed() {
		return nil, errUncounted
	}
	return sh, nil
}

var errUncounted = backend.Wrap(backend.ErrUnavailable, errors.New("the store has not said yet how many shards the namespace has"))

// findJob is find for what is about one job; ErrNoJob where there is no such shard.
func (s *core) findJob(ctx context.Context, ns *Namespace, queue string, ref Ref) (*shard, error) {
	if err := badJob(ns, queue, ref); err != nil {
		return nil, err
	}
	if err := s.space.Resolve(ctx, ns.Home); err != nil {
		return nil, backend.Wrap(backend.ErrUnavailable, err)
	}
	sh, err := ns.find(ref.Shard)
	if err == nil && sh == nil {
		err = ErrNoJob
	}
	return sh, err
}

// place finds the shard of each request that has no error yet.
func (b *Batch) place() {
	for _, a := range b.Acks {
		if a.at = nil; a.Err == nil {
			a.at, a.Err = a.Namespace.find(a.Ref.Shard)
		}
	}
	for _, t := range b.Settles {
		if t.at = nil; t.Err == nil {
			t.at, t.Err = t.Namespace.find(t.Ref.Shard)
		}
	}
	for _, p := range b.Publishes {
		if p.at = nil; p.Err == nil {
			if !slices.Contains(p.Namespace.Shards(p.Queue), p.Shard) {
				p.Shard = p.Namespace.HomeOf(p, uint64(p.Shard)) // #nosec G115 -- not negative
			}
			p.at = p.Namespace.shardAt(p.Shard)
		}
	}
	for _, c := range b.Claims {
		if c.at = nil; c.Err == nil {
			if c.at = c.Namespace.shardAt(c.Shard); c.at == nil {
				c.Err = errUncounted // it was planned for another number of shards
			}
		}
	}
}
