package partition

import "github.com/spillway-io/spillway/partition/space"

// MaxZones is the most zones of a store: see space.MaxZones.
const MaxZones = space.MaxZones

// ZoneOf is the zone of a partition's shard, 0 to Zones-1. A zone is an even part of
// the slots of a Redis Cluster, so its shards are most likely on one master, and a slow
// master delays only its own zones. A partition never changes its zone. Any other store
// has a single zone.
func (n *Namespace) ZoneOf(partition string) int {
	if len(n.shards) == 0 {
		return 0
	}
	return n.shardOf(partition).Zone
}

// setZones numbers the zones of all shards anew and returns how many there are. Parts of the
// slots without a shard do not count.
func setZones(namespaces map[string]*Namespace) int {
	var number [MaxZones]int
	for _, ns := range namespaces {
		for _, sh := range ns.home.Shards {
			number[sh.Zone] = 1
		}
	}
	zones := 0
	for z, used := range number {
		number[z] = zones
		zones += used
	}
	for _, ns := range namespaces {
		for _, sh := range ns.home.Shards {
			sh.Zone = number[sh.Zone]
		}
	}
	return zones
}

// Zones is the number of zones over the shards of all namespaces.
func (s *Store) Zones() int { return s.zones }
