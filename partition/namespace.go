package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/partition/drops"
	"github.com/spillway-io/spillway/partition/space"
)

// Namespace is a tenant of the store. Open makes it; it never changes.
type Namespace struct {
	Name   string
	Policy Policy

	store *Store // nil where no Store made it
	home  *space.Home
	full  int // entries that make a full batch
	drops *drops.Namespace
}

func newNamespace(prefix, name string, policy Policy) (*Namespace, error) {
	if !ValidNamespace(name) {
		return nil, Wrong("namespaces", name, "a name of 1 to 64 letters, digits, '.', '_' or '-' that starts with a letter or digit")
	}
	if err := policy.Validate(); err != nil {
		return nil, err
	}
	n := &Namespace{Name: name, Policy: policy, full: min(policy.Batch, policy.Capacity)}
	n.home = space.NewHome(prefix, name, policy.Shards, func(at *space.Shard) any { return newShard(n, at) })
	n.home.Required = true
	n.home.Reordered = n.reordered
	return n, nil
}

// shard is that of a number; nil: there is none.
func (n *Namespace) shard(number int) *shard {
	all := n.home.Shards()
	if number < 0 || number >= len(all) {
		return nil
	}
	return own(all[number])
}

// shards are those of the namespace.
func (n *Namespace) shards() (all []*shard) {
	for _, at := range n.home.Shards() {
		all = append(all, own(at))
	}
	return all
}

// Fixed closes once the number of shards is known, which is when the store was first checked.
func (n *Namespace) Fixed() <-chan struct{} {
	if n.home == nil { // no Store made it
		return fixed
	}
	return n.home.Fixed()
}

// fixed is closed.
var fixed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// ShardOf is the number of the shard of a partition: FNV-1a of its name modulo their number. It is
// part of the stored format.
func (n *Namespace) ShardOf(partition string) int { return n.shardOf(partition).Number }

// reordered wakes the drainer of this process: what it left to others may be its own now.
func (n *Namespace) reordered() {
	for _, sh := range n.shards() {
		sh.alarm.ring(0)
	}
}

// linger is how long a batch that is not full waits this time, in ms: up to an eighth
// less than the policy says, at random. Otherwise partitions that began together would
// come due together for ever, and their claims and writes would delay everything else.
func (n *Namespace) linger() int64 {
	longest := n.Policy.Linger.Milliseconds()
	return longest - rand.Int64N(longest/8+1)
}

// Now is the clock of the store, in Unix ms. ok is false until its Redis has answered once.
func (n *Namespace) Now() (ms int64, ok bool) {
	if n.store == nil {
		return 0, false
	}
	return n.store.backend.Now()
}

// Shards is how many shards the namespace has.
func (n *Namespace) Shards() int {
	if n.home == nil { // no Store made it
		return n.Policy.Shards
	}
	return len(n.home.Shards())
}

func (n *Namespace) shardOf(partition string) *shard {
	return own(n.home.Of(partition))
}

// Namespace returns the namespace of that name, nil when there is none.
func (s *Store) Namespace(name string) *Namespace { return s.namespaces[name] }

// Namespaces returns all namespaces in the order of their names.
func (s *Store) Namespaces() []*Namespace {
	all := make([]*Namespace, 0, len(s.namespaces))
	for _, ns := range s.namespaces {
		all = append(all, ns)
	}
	slices.SortFunc(all, byName)
	return all
}

func byName(a, b *Namespace) int { return strings.Compare(a.Name, b.Name) }

// recordEvicted records what a produce evicted. sample is the head of the newest evicted
// entry, which the script returns in one ms of 64, at now on the store's clock; otherwise
// nil.
func (g *Group) recordEvicted(now int64, sample []byte) {
	d := g.Namespace.drops
	drop := drops.Drop{Reason: drops.Evicted, Partition: g.Partition, Entries: g.Evicted}
	e, err := ParseEntry(sample)
	if err != nil {
		if !d.CountOneUnnamed(drops.Evicted, g.Evicted) {
			return
		}
	} else if d.CountOne(drops.Evicted, g.Evicted) {
		drop.ID, drop.Age = string(e.ID), time.Duration(max(0, now-e.Occurred))*time.Millisecond
	} else {
		return
	}
	if n, most := len(g.Entries), g.Namespace.Policy.Capacity; n > most {
		drop.Detail = fmt.Sprintf("%d entries came at once, and the partition keeps %d", n, most)
	}
	d.Record(drop)
}

// recordExpired records stale entries that a claim or the janitor dropped. The scripts
// do not return them.
func (n *Namespace) recordExpired(partition string, entries int) {
	if entries > 0 && n.drops.CountOne(drops.Expired, entries) {
		n.drops.Record(drops.Drop{Reason: drops.Expired, Partition: partition, Entries: entries})
	}
}
