package partition

import (
	"time"

	"github.com/spillway-io/spillway/partition/drops"
)

// recordEvicted records what a produce evicted. sample is the head of the newest evicted
// entry, which the script returns in one ms of 64, at now on the store's clock; otherwise
// nil.
func (g *Group) recordEvicted(now int64, sample []byte) {
	d := g.Namespace.drops
	e, err := ParseEntry(sample)
	if err != nil {
		if d.CountOneUnnamed(drops.Evicted, g.Evicted) {
			d.Record(drops.Drop{Reason: drops.Evicted, Partition: g.Partition, Entries: g.Evicted})
		}
	} else if d.CountOne(drops.Evicted, g.Evicted) {
		age := time.Duration(max(0, now-e.Occurred)) * time.Millisecond
		d.Record(drops.Drop{Reason: drops.Evicted, Partition: g.Partition, Entries: g.Evicted, ID: string(e.ID), Age: age})
	}
}

// recordExpired records stale entries that a claim or the janitor dropped. The scripts
// do not return them.
func (n *Namespace) recordExpired(partition string, entries int) {
	if entries > 0 && n.drops.CountOne(drops.Expired, entries) {
		n.drops.Record(drops.Drop{Reason: drops.Expired, Partition: partition, Entries: entries})
	}
}
