package partition

import "github.com/spillway-io/spillway/partition/space"

// MaxZones is the most zones of a store: see space.MaxZones.
const MaxZones = space.MaxZones

// ZoneOf is the zone of a partition's shard, 0 to Zones-1. A zone is an even part of
// the slots of a Redis Cluster, so its shards are most likely on one master, and a slow
// master delays only its own zones. A partition never changes its zone.
// Any other store has a single zone.
func (n *Namespace) ZoneOf(partition string) int {
	if n.store == nil {
		return 0
	}
	return n.store.firstZone + n.shardOf(partition).Zone
}

// Zone is the zone of the shard that the lease was claimed in.
func (l *Lease) Zone() int {
	if l.Namespace.store == nil {
		return 0
	}
	return l.Namespace.store.firstZone + l.shard().Zone
}

// Zones is the number of zones, also of those that no shard is in.
func (s *Store) Zones() int { return s.space.Zones() }
