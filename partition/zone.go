package partition

// MaxZones is how many zones a store has at most. Twelve divide evenly among 2,
// 3, 4, 6 or 12 masters. More would make smaller flushes, which cost Redis more
// an entry.
const MaxZones = 12

// ZoneOf is the zone of a partition's shard, 0 to Zones-1: shards of one zone
// are most likely on one master of a Redis Cluster, those of two zones may not
// be. So what waits for one zone need not delay another. A zone is an even part
// of the cluster's slots, whatever master serves them, so a partition stays in
// its zone. Any store but a Redis Cluster is a single zone.
func (n *Namespace) ZoneOf(partition string) int {
	if len(n.shards) == 0 {
		return 0
	}
	return n.shardOf(partition).zone
}

// setZones gives every shard its zone and returns how many there are: parts
// without a shard are none.
func setZones(namespaces map[string]*Namespace) int {
	var number [MaxZones]int
	for _, ns := range namespaces {
		for i := range ns.shards {
			ns.shards[i].zone = slot(ns.shards[i].prefix) * MaxZones / slots
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

// Zones is how many zones the shards of all namespaces are in.
func (s *Store) Zones() int { return s.zones }
