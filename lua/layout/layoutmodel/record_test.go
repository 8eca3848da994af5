package layoutmodel

import "slices"

// A Layout is a numbered, immutable list of shards. Its number never repeats.
// A home is a shard of a layout: that of a name is fixed by the name alone.
type Layout struct {
	n      int
	shards int
	first  int // number of its first shard, in ids of jobs
	closed bool
	pool   int     // that its shards lie in
	sums   *Ledger // totals of its ledgers, which are not read any more; nil: they are
}

type ID struct{ layout, idx, pool int }

func (l Layout) id(idx int) ID { return ID{l.n, idx, l.pool} }

func (l Layout) home(name int) ID { return l.id((name*7 + l.n*3) % l.shards) }

// A Record is what a namespace knows of its layouts: one hash in one slot. No sequence of
// a closed layout is as high as floor.
type Record struct {
	layouts []Layout
	floor   int
	version int // of the stored record, in walks with pools
}

// join is what two records know together. Closed wins, the larger floor wins; so a record
// that a failover set back is repaired by whoever knows more.
func (r Record) join(o Record) Record {
	r = r.clone()
	for _, l := range o.layouts {
		i, found := slices.BinarySearchFunc(r.layouts, l.n, func(l Layout, n int) int { return l.n - n })
		if !found {
			r.layouts = slices.Insert(r.layouts, i, l)
			continue
		}
		r.layouts[i].closed = r.layouts[i].closed || l.closed
		if r.layouts[i].sums == nil {
			r.layouts[i].sums = l.sums
		}
	}
	r.floor, r.version = max(r.floor, o.floor), max(r.version, o.version)
	return r
}

func (r Record) clone() Record {
	r.layouts = append([]Layout(nil), r.layouts...)
	return r
}

func (r Record) current() Layout { return r.layouts[len(r.layouts)-1] }

// older are the layouts before n that are not closed, oldest first.
func (r Record) older(n int) (list []Layout) {
	for _, l := range r.layouts {
		if l.n < n && !l.closed {
			list = append(list, l)
		}
	}
	return
}

// remembered are the layouts before n whose results of idempotent calls may still count, also
// closed ones: in truth those that were fenced less than 24 hours ago.
func (r Record) remembered(w *World, n int) (list []Layout) {
	if w.bug("closed-not-asked") {
		return r.older(n)
	}
	for _, l := range r.layouts {
		if l.n < n {
			list = append(list, l)
		}
	}
	return
}
