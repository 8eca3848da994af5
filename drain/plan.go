package drain

import "github.com/spillway-io/spillway/partition"

// A writeUnit is what goes into one Write: one batch, or several where the sink takes
// them together. A rejected unit is split in two, down to a single entry.
type writeUnit struct {
	spans []span
	split bool // part of one that was rejected
}

// A span is a batch by the positions of its entries, [lo, hi). Those that have
// gone stale meanwhile are left out of the Write.
type span struct{ lo, hi int }

// plan cuts a lease into units of up to so many batches and bytes of payload, the
// first one last; 0 bytes = any number. A batch is never cut. first is how many
// entries the first unit may hold; 0 = as many as any other.
func plan(lease *partition.Lease, batches, bytes, first int) []writeUnit {
	var units []writeUnit
	lo := 0
	if first > 0 && len(lease.Cuts) > 0 {
		lo = min(first, int(lease.Cuts[0]-lease.From))
		units = append(units, writeUnit{spans: []span{{0, lo}}, split: true})
	}
	var joined []span
	room := bytes
	for _, cut := range lease.Cuts {
		s := span{lo, int(cut - lease.From)}
		if lo = s.hi; bytes > 0 {
			n := payloadBytes(lease.Entries[s.lo:s.hi])
			if len(joined) > 0 && n > room {
				units = append(units, writeUnit{spans: joined})
				joined = nil
			}
			if len(joined) == 0 {
				room = bytes
			}
			room -= n
		}
		if s.lo < s.hi {
			joined = append(joined, s)
		}
		if len(joined) >= max(batches, 1) {
			units = append(units, writeUnit{spans: joined})
			joined = nil
		}
	}
	if len(joined) > 0 {
		units = append(units, writeUnit{spans: joined})
	}
	for i, j := 0, len(units)-1; i < j; i, j = i+1, j-1 {
		units[i], units[j] = units[j], units[i]
	}
	return units
}

func payloadBytes(entries []partition.Entry) (n int) {
	for i := range entries {
		n += len(entries[i].Payload)
	}
	return n
}
