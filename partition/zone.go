package partition

import "github.com/spillway-io/spillway/partition/space"

// MaxZones is the most zones of a store: see space.MaxZones.
const MaxZones = space.MaxZones

// ZoneOf is the zone of a partition's shard, 0 to Zones-1. A zone is an even part of
// the slots of a Redis Cluster, so its shards are most likely on one master, and a slow
// master delays only its own zones. A partition changes its zone only by Store.DealZones. Any
// other store has a single zone.
func (n *Namespace) ZoneOf(partition string) int {
	if n.store == nil {
		return 0
	}
	return n.store.firstZone + own(n.dealt.Load().Current().Of(partition)).Zone
}

// Zone is the zone of the shard that the lease was claimed in.
func (l *Lease) Zone() int {
	if l.Namespace.store == nil {
		return 0
	}
	return l.Namespace.store.firstZone + l.shard().Zone
}

// Zones is the number of zones, also of those that no shard is in: the shards of tomorrow are not known.
func (s *Store) Zones() int { return s.space.Zones() }

// ZonesMoved reports whether DealZones would change what ZoneOf says.
func (s *Store) ZonesMoved() bool {
	for _, ns := range s.namespaces {
		if ns.dealt.Load().Current().N != ns.home.Layouts().Current().N {
			return true
		}
	}
	return false
}

// DealZones has ZoneOf say where partitions are now. Nothing may be on its way that was put where
// ZoneOf said before.
func (s *Store) DealZones() {
	for _, ns := range s.namespaces {
		ns.dealt.Store(ns.home.Layouts())
	}
}
