package partition

import "github.com/spillway-io/spillway/partition/drops"

// recordEvicted records what a produce evicted, without the ids: the script answers with
// counts. A read of the oldest entry before the produce would not do, for a commit in
// between may deliver it.
func (g *Group) recordEvicted() {
	d := g.Namespace.drops
	if d.CountOne(drops.Evicted, g.Evicted) {
		d.Record(drops.Drop{Reason: drops.Evicted, Partition: g.Partition, Entries: g.Evicted})
	}
}

// recordExpired records stale entries that a claim or the janitor dropped. The scripts
// do not return them.
func (n *Namespace) recordExpired(partition string, entries int) {
	if entries > 0 && n.drops.CountOne(drops.Expired, entries) {
		n.drops.Record(drops.Drop{Reason: drops.Expired, Partition: partition, Entries: entries})
	}
}
