package guard

import (
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// A Pending is a Write about to be made.
type Pending struct {
	Batches []*sink.Batch
	Entries int
	Stale   time.Time    // when its oldest entry goes stale
	Oldest  int64        // the time of that entry
	Trial   bool         // its entries have less life than minLife
	Dropped []sink.Entry // left out by StillFresh
}

func (p *Pending) StaleAt(e sink.Entry) time.Time {
	return p.Stale.Add(time.Duration(e.Occurred-p.Oldest) * time.Millisecond)
}

// StillFresh leaves out what has become too old for a Write, because it is stale or
// has less life than minLife, while its commit or other entries were waited for. A
// trial may have less.
func (p Pending) StillFresh(now time.Time, minLife time.Duration) Pending {
	if p.Trial {
		minLife = 0
	}
	if left := p.Stale.Sub(now); left > 0 && left >= minLife {
		return p
	}
	kept := Pending{Trial: p.Trial, Stale: p.Stale, Oldest: p.Oldest}
	for _, b := range p.Batches {
		var entries []sink.Entry
		for _, e := range b.Entries {
			stale := p.StaleAt(e)
			if left := stale.Sub(now); left <= 0 || left < minLife {
				kept.Dropped = append(kept.Dropped, e)
				continue
			}
			entries = append(entries, e)
			if kept.Entries++; kept.Entries == 1 || stale.Before(kept.Stale) {
				kept.Stale, kept.Oldest = stale, e.Occurred
			}
		}
		if len(entries) > 0 { // another batch, for it has another id
			kept.Batches = append(kept.Batches, &sink.Batch{
				Namespace: b.Namespace,
				Partition: b.Partition,
				FirstSeq:  entries[0].Seq,
				End:       b.End,
				Attempt:   b.Attempt,
				Deadline:  b.Deadline,
				Entries:   entries,
			})
		}
	}
	kept.Dropped = append(kept.Dropped, p.Dropped...)
	return kept
}
