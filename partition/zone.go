package partition

import "github.com/spillway-io/spillway/partition/backend"

// MaxZones is the most zones of a store. Twelve divide evenly among 2, 3, 4, 6 or 12
// masters. More zones would make smaller flushes, which cost Redis more per entry.
const MaxZones = 12

// ZoneOf is the zone of a partition's shard, 0 to Zones-1. A zone is an even part of
// the slots of a Redis Cluster, so its shards are most likely on one master, and a slow
// master delays only its own zones. A partition never changes its zone. Any other store
// has a single zone.
func (n *Namespace) ZoneOf(partition string) int {
	if len(n.shards) == 0 {
		return 0
	}
	return n.shardOf(partition).zone
}

// setZones gives every shard its zone and returns how many zones there are. Parts of the
// slots without a shard do not count.
func setZones(namespaces map[string]*Namespace) int {
	var number [MaxZones]int
	for _, ns := range namespaces {
		for i := range ns.shards {
			ns.shards[i].zone = backend.Slot(ns.shards[i].prefix) * MaxZones / backend.Slots
			number[ns.shards[i].zone] = 1
		}
	}
	zones := 0
	for z, used := range number {
		number[z] = zones
		zones += used
	}
	for _, ns := range namespaces {
		for i := range ns.shards {
			ns.shards[i].zone = number[ns.shards[i].zone]
		}
	}
	return zones
}

// Zones is the number of zones over the shards of all namespaces.
func (s *Store) Zones() int { return s.zones }
