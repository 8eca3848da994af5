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
	return n.store.zones.first + own(n.dealt.Load().Current().Of(partition)).Zone
}

// Zone is the zone of the shard that the lease was claimed in.
func (l *Lease) Zone() int {
	if l.Namespace.store == nil {
		return 0
	}
	return l.Namespace.store.zones.first + l.shard().Zone
}

// zones numbers the parts of the slots that have shards when the store is opened. Parts without
// one do not count; a shard that comes later in such a part shares the zone of another.
type zones struct {
	number [MaxZones]int // from 0; -1: no shard was there
	count  int
	first  int // zones of the stores before this one, see Join
}

func newZones(namespaces map[string]*Namespace) (z zones) {
	for i := range z.number {
		z.number[i] = -1
	}
	for _, ns := range namespaces {
		for _, sh := range ns.home.Shards() {
			z.number[sh.Zone] = 0
		}
	}
	for i, used := range z.number {
		if used == 0 {
			z.number[i] = z.count
			z.count++
		}
	}
	return z
}

func (z *zones) of(part int) int {
	switch {
	case z.count == 0: // the store is being opened
		return part
	case z.number[part] < 0:
		return part % z.count
	}
	return z.number[part]
}

// Zones is the number of zones over the shards of all namespaces.
func (s *Store) Zones() int { return s.zones.count }

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
