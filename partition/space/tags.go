package space

import (
	"fmt"
	"strconv"

	"github.com/spillway-io/spillway/partition/backend"
)

// slotRange is a part of a cluster's hash slots.
type slotRange = [2]int // the first and the last

// spreadSlots chooses a slot for each of n shards: those of a master in turn, spread evenly over
// the slots that it has. Without masters they are spread over all slots.
func spreadSlots(masters [][]slotRange, n int) []int {
	if len(masters) == 0 {
		masters = [][]slotRange{{{0, backend.Slots - 1}}}
	}
	slots := make([]int, n)
	for i := range slots {
		master := masters[i%len(masters)]
		size := 0
		for _, r := range master {
			size += r[1] - r[0] + 1
		}
		// Of k shards on a master, the j-th is in the middle of the j-th of k parts.
		k, j := (n-1-i%len(masters))/len(masters)+1, i/len(masters)
		at := (2*j + 1) * size / (2 * k)
		for _, r := range master {
			if length := r[1] - r[0] + 1; at >= length {
				at -= length
				continue
			}
			slots[i] = r[0] + at
			break
		}
	}
	return slots
}

// tagEnd is the end of a hash tag {namespace.end} of shard i of a layout, which hits a slot: the
// first of the numbers in base 36. Four digits reach every slot, most take three.
func tagEnd(namespace string, layout int64, i, slot int) string {
	start := fmt.Sprintf("%d.%d-", layout, i)
	tag := "{" + namespace + "." + start
	for n := int64(0); ; n++ { // some 16,000 times
		if digits := strconv.FormatInt(n, 36); backend.Slot(tag+digits+"}") == slot {
			return start + digits
		}
	}
}

// newLayout is a layout of n shards on the masters of a cluster.
func newLayout(namespace string, number int64, n int, masters [][]slotRange) LayoutRecord {
	l := LayoutRecord{N: number, Shards: n}
	for i, slot := range spreadSlots(masters, n) {
		l.Tags = append(l.Tags, tagEnd(namespace, number, i, slot))
	}
	return l
}
