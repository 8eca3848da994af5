package drain

import (
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// A pendingWrite is a Write about to be made.
type pendingWrite struct {
	batches []*sink.Batch
	entries int
	stale   time.Time    // when its oldest entry goes stale
	oldest  int64        // the time of that entry
	trial   bool         // its entries have less life than minLife
	dropped []sink.Entry // left out by stillFresh
}

func (p *pendingWrite) staleAt(e sink.Entry) time.Time {
	return p.stale.Add(time.Duration(e.Occurred-p.oldest) * time.Millisecond)
}

// stillFresh leaves out what has become too old for a Write, because it is stale or
// has less life than minLife, while its commit or other entries were waited for. A
// trial may have less.
func (p pendingWrite) stillFresh(now time.Time, minLife time.Duration) pendingWrite {
	if p.trial {
		minLife = 0
	}
	if left := p.stale.Sub(now); left > 0 && left >= minLife {
		return p
	}
	kept := pendingWrite{trial: p.trial, stale: p.stale, oldest: p.oldest}
	for _, b := range p.batches {
		var entries []sink.Entry
		for _, e := range b.Entries {
			stale := p.staleAt(e)
			if left := stale.Sub(now); left <= 0 || left < minLife {
				kept.dropped = append(kept.dropped, e)
				continue
			}
			entries = append(entries, e)
			if kept.entries++; kept.entries == 1 || stale.Before(kept.stale) {
				kept.stale, kept.oldest = stale, e.Occurred
			}
		}
		if len(entries) > 0 { // another batch, for it has another id
			kept.batches = append(kept.batches, &sink.Batch{
				Namespace: b.Namespace, Partition: b.Partition, FirstSeq: entries[0].Seq,
				End: b.End, Attempt: b.Attempt, Deadline: b.Deadline, Entries: entries,
			})
		}
	}
	kept.dropped = append(kept.dropped, p.dropped...)
	return kept
}
