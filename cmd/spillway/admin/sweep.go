package admin

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
)

// The sweep reads all partitions of all namespaces, a few pages each second, so that any
// number of people can look at any order of them at no further cost to the store.
const (
	sweepEvery = time.Second
	// sweepPages are read a second while somebody watches. A page is 200 partitions in
	// two calls and 1 to 1.6 ms of Redis (BenchmarkSweep).
	sweepPages = 12
	sweepPage  = 200
	// idlePages are read a second while nobody does.
	idlePages = 2
	// sweepTime bounds what a slow Redis makes of the above.
	sweepTime = 500 * time.Millisecond
	// watchedFor is how long after a request somebody counts as watching.
	watchedFor = 30 * time.Second
	// maxRows are kept in memory, about 200 bytes each.
	maxRows = 200_000
	// refreshed of the rows with the most entries, and as many of the oldest ones, are read
	// again each second.
	refreshed = 25
)

// A row is what the sweep knows of a partition.
type row struct {
	partition.Stats
	oldest int64 // Unix ms of the oldest entry's time
	swept  int64 // Unix ms
	paused bool

	in, out, evicted, expired float32 // entries a second between the last two reads; 0 after one
}

// swept is the sweep of one namespace.
type swept struct {
	rows      map[string]*row
	next      partition.Page
	began     int64  // Unix ms of the running pass; 0 = it has not begun
	completed int64  // Unix ms of the last complete pass; 0 = none
	took      int64  // ms, of that pass
	leftOut   int    // partitions of the running pass beyond maxRows
	oldest    int64  // Unix ms, of the last pass or refresh; 0 = no entries, or not known
	oldestAge int64  // ms, as it was when its partition was read
	oldestIn  string // that partition
	paused    map[string]bool
}

// watch notes that somebody looks. The first look for a while begins a tick at once.
func (o *observer) watch() {
	o.mu.Lock()
	idle := !o.watched.now(o.now())
	o.watched.look(o.now())
	o.mu.Unlock()
	if idle {
		o.wake.Ring()
	}
}

// sweep ticks every second until ctx ends.
func (o *observer) sweep(ctx context.Context) {
	every := time.NewTicker(sweepEvery)
	defer every.Stop()
	for {
		o.tick(ctx)
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case <-o.wake:
		}
	}
}

// tick reads its pages, from one namespace after the other. A namespace whose pass ends
// begins the next one in a later tick.
func (o *observer) tick(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	v := o.source()
	if v.Store == nil {
		return
	}
	found := o.observed(v)
	o.forget(found) // first, as one that was made again as another kind has no figures then
	o.follow(v.Store, found)
	store, all := v.Store, v.Store.Namespaces()
	o.mu.Lock()
	pages, watched := idlePages, o.watched.now(o.now())
	o.mu.Unlock()
	if watched {
		pages = sweepPages
	}
	done := make([]bool, len(all))
	for open := len(all); pages > 0 && open > 0 && ctx.Err() == nil; o.turn++ {
		at := o.turn % len(all)
		if done[at] {
			continue
		}
		pages--
		ended, err := o.page(ctx, store, all[at])
		if ended || err != nil {
			done[at], open = true, open-1
		}
		if err != nil {
			o.log.Debug("partitions not read", zap.String("namespace", all[at].Name), zap.Error(err))
		}
	}
	if watched {
		o.refresh(ctx, store, all)
		o.pauses(ctx, store, all)
	}
	o.mu.Lock()
	close(o.ticked)
	o.ticked = make(chan struct{})
	o.mu.Unlock()
}

// pauses reads which partitions are paused, where any is.
func (o *observer) pauses(ctx context.Context, store Store, all []*partition.Namespace) {
	for _, ns := range all {
		o.mu.Lock()
		f := o.spaces[ns.Name]
		any := f.PausedPartitions > 0 || len(f.paused) > 0
		o.mu.Unlock()
		if any {
			if parts, err := store.Pauses(ctx, ns); err == nil {
				o.notePauses(ns.Name, parts)
			}
		}
	}
}

// page reads the next page of a namespace. ended is true for the last one of a pass.
func (o *observer) page(ctx context.Context, store Store,
	ns *partition.Namespace) (ended bool, err error) {
	o.mu.Lock()
	sp := o.spaces[ns.Name]
	from := sp.next
	if from == (partition.Page{}) {
		sp.began, sp.leftOut = o.now().UnixMilli(), 0
	}
	o.mu.Unlock()
	list, next, err := store.Partitions(ctx, ns, from, sweepPage)
	if err != nil {
		return false, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now().UnixMilli()
	for _, stats := range list {
		o.put(sp, stats, now)
	}
	sp.next = next
	if next != (partition.Page{}) {
		return false, nil
	}
	for name, r := range sp.rows {
		if r.swept < sp.began { // the pass did not meet it: it has no entries
			o.drop(sp, name)
		}
	}
	sp.completed, sp.took = now, now-sp.began
	sp.findOldest()
	return true, nil
}

// put keeps what was read of a partition.
func (o *observer) put(sp *figures, stats partition.Stats, now int64) {
	r := sp.rows[stats.Partition]
	fresh := r == nil
	if fresh {
		if o.known >= o.maxRows && !o.displace(sp, stats, now) {
			sp.leftOut++
			return
		}
		r = &row{}
		sp.rows[stats.Partition] = r
		o.known++
	} else {
		r.rates(stats, now)
	}
	r.Stats = stats
	r.swept = now
	r.oldest = now - stats.OldestAge.Milliseconds()
	r.paused = sp.paused[stats.Partition]
}

func (o *observer) drop(sp *figures, name string) {
	delete(sp.rows, name)
	o.known--
}

// displace makes room for a partition with more or older entries than one of a few others.
func (o *observer) displace(sp *figures, stats partition.Stats, now int64) bool {
	tried := 0
	for name, r := range sp.rows { // in no order
		if r.Depth < stats.Depth && r.oldest > now-stats.OldestAge.Milliseconds() {
			o.drop(sp, name)
			sp.leftOut++
			return true
		}
		if tried++; tried == 16 {
			break
		}
	}
	return false
}

// rates sets the rates between the last read and this one. Counters count since the
// partition last was empty, so a smaller one began anew.
func (r *row) rates(now partition.Stats, at int64) {
	seconds := float32(at-r.swept) / 1000
	if seconds <= 0 {
		return
	}
	accepted := now.Accepted - r.Accepted
	evicted := now.Evicted - r.Evicted
	expired := now.Expired - r.Expired
	depth := int64(now.Depth - r.Depth)
	if accepted < 0 {
		accepted = now.Accepted
		evicted = now.Evicted
		expired = now.Expired
	}
	perSecond := func(n int64) float32 { return float32(max(0, n)) / seconds }
	r.in = perSecond(accepted)
	r.evicted = perSecond(evicted)
	r.expired = perSecond(expired)
	r.out = perSecond(accepted - evicted - expired - depth)
}

// refresh reads the rows with the most and with the oldest entries again.
func (o *observer) refresh(ctx context.Context, store Store, all []*partition.Namespace) {
	for i := range all {
		ns := all[(o.turn+i)%len(all)]
		if i == sweepPages || ctx.Err() != nil {
			return
		}
		names := o.top(ns.Name)
		if len(names) == 0 {
			continue
		}
		list, err := store.Describe(ctx, ns, names)
		if err != nil {
			continue
		}
		o.mu.Lock()
		sp, now := o.spaces[ns.Name], o.now().UnixMilli()
		for _, stats := range list {
			o.put(sp, stats, now)
		}
		for _, name := range names {
			if r := sp.rows[name]; r != nil && r.swept < now {
				o.drop(sp, name)
			}
		}
		sp.findOldest()
		o.mu.Unlock()
	}
}

func (sp *figures) findOldest() {
	sp.oldest, sp.oldestAge, sp.oldestIn = 0, 0, ""
	for name, r := range sp.rows {
		if age := r.swept - r.oldest; age > sp.oldestAge {
			sp.oldestAge, sp.oldestIn = age, name
		}
		if sp.oldest == 0 || r.oldest < sp.oldest {
			sp.oldest = r.oldest
		}
	}
}

// top are the names to refresh: none of those that this tick read already.
func (o *observer) top(namespace string) (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	sp, recent := o.spaces[namespace], o.now().Add(-sweepEvery/2).UnixMilli()
	for _, column := range []string{"depth", "oldest_age"} {
		for _, r := range sp.best(order{column: column, descending: true}, o.refreshed) {
			if r.swept < recent && !slices.Contains(names, r.Partition) {
				names = append(names, r.Partition)
			}
		}
	}
	return names
}
