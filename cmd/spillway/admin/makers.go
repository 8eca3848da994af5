package admin

import (
	"time"

	"github.com/spillway-io/spillway/partition/drops"
)

// A Maker is the partition that most of what a namespace drops or rejects for one reason belongs to, by the samples of this
// process.
type Maker struct {
	Partition string
	Share     float64 // of the entries of the samples: 0 to 1
	Cause     string  // where it is another than usual
}

// makersFor is how long samples count.
const makersFor = time.Minute

// makers finds those of each namespace, by reason.
func makers(log *drops.Log, now time.Time) map[string]map[string]Maker {
	type key struct {
		namespace string
		reason    drops.Reason
	}
	totals, entries := map[key]int{}, map[key]map[string]int{}
	found := map[string]map[string]Maker{}
	for _, d := range log.Recent(drops.Query{Since: now.Add(-makersFor)}) { // the newest first
		k := key{d.Namespace, d.Reason}
		if entries[k] == nil {
			entries[k] = map[string]int{}
		}
		totals[k] += d.Entries
		entries[k][d.Partition] += d.Entries
	}
	for k, of := range entries {
		most := ""
		for name, n := range of {
			if n > of[most] || n == of[most] && name < most {
				most = name
			}
		}
		if most == "" { // samples of requests that name none
			continue
		}
		if found[k.namespace] == nil {
			found[k.namespace] = map[string]Maker{}
		}
		m := Maker{Partition: most, Share: float64(of[most]) / float64(totals[k])}
		if k.reason == drops.Evicted {
			for _, d := range log.Recent(drops.Query{Namespace: k.namespace, Reason: k.reason, Partition: most, Limit: 1}) {
				m.Cause = d.Detail
			}
		}
		found[k.namespace][string(k.reason)] = m
	}
	return found
}
