package admin

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/lifecycle"
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

// spaceSweep is the sweep of one namespace.
type spaceSweep struct {
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

// sweep belongs to the Server, and outlives a reload.
type sweep struct {
	source Source
	log    *zap.Logger
	now    func() time.Time
	wake   lifecycle.Signal

	hasPauses func(namespace string) bool // whether any partition is paused, as the ledger was read last
	maxRows   int
	refreshed int
	turn      int // which namespace is first in the next tick

	mu      sync.Mutex
	watched time.Time // of the last request
	spaces  map[string]*spaceSweep
	known   int           // rows of all spaces
	ticked  chan struct{} // closed when a tick ends
}

func newSweep(source Source, log *zap.Logger) *sweep {
	return &sweep{
		source:    source,
		log:       log,
		now:       time.Now,
		wake:      lifecycle.NewSignal(),
		hasPauses: func(string) bool { return false },
		maxRows:   maxRows,
		refreshed: refreshed,
		spaces:    map[string]*spaceSweep{},
		ticked:    make(chan struct{}),
	}
}

// watch notes that somebody looks. The first look for a while begins a tick at once.
func (s *sweep) watch() {
	s.mu.Lock()
	idle := s.now().Sub(s.watched) > watchedFor
	s.watched = s.now()
	s.mu.Unlock()
	if idle {
		s.wake.Ring()
	}
}

// run ticks every second until ctx ends.
func (s *sweep) run(ctx context.Context) {
	every := time.NewTicker(sweepEvery)
	defer every.Stop()
	for {
		s.tick(ctx)
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case <-s.wake:
		}
	}
}

// tick reads its pages, from one namespace after the other. A namespace whose pass ends
// begins the next one in a later tick.
func (s *sweep) tick(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	store := s.source().Store
	if store == nil {
		return
	}
	all := store.Namespaces()
	s.forget(all)
	s.mu.Lock()
	pages, watched := idlePages, s.now().Sub(s.watched) <= watchedFor
	s.mu.Unlock()
	if watched {
		pages = sweepPages
	}
	done := make([]bool, len(all))
	for open := len(all); pages > 0 && open > 0 && ctx.Err() == nil; s.turn++ {
		at := s.turn % len(all)
		if done[at] {
			continue
		}
		pages--
		ended, err := s.page(ctx, store, all[at])
		if ended || err != nil {
			done[at], open = true, open-1
		}
		if err != nil {
			s.log.Debug("partitions not read", zap.String("namespace", all[at].Name), zap.Error(err))
		}
	}
	if watched {
		s.refresh(ctx, store, all)
	}
	if watched {
		s.pauses(ctx, store, all)
	}
	s.mu.Lock()
	close(s.ticked)
	s.ticked = make(chan struct{})
	s.mu.Unlock()
}

// pauses reads which partitions are paused, where any is.
func (s *sweep) pauses(ctx context.Context, store Store, all []*partition.Namespace) {
	for _, ns := range all {
		s.mu.Lock()
		before := len(s.spaces[ns.Name].paused)
		s.mu.Unlock()
		if before > 0 || s.hasPauses(ns.Name) {
			if parts, err := store.Pauses(ctx, ns); err == nil {
				s.notePauses(ns.Name, parts)
			}
		}
	}
}

// forget drops the namespaces that are no more.
func (s *sweep) forget(all []*partition.Namespace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, sp := range s.spaces {
		if !slices.ContainsFunc(all, func(ns *partition.Namespace) bool { return ns.Name == name }) {
			s.known -= len(sp.rows)
			delete(s.spaces, name)
		}
	}
	for _, ns := range all {
		if s.spaces[ns.Name] == nil {
			s.spaces[ns.Name] = &spaceSweep{rows: map[string]*row{}}
		}
	}
}

// page reads the next page of a namespace. ended is true for the last one of a pass.
func (s *sweep) page(ctx context.Context, store Store,
	ns *partition.Namespace) (ended bool, err error) {
	s.mu.Lock()
	sp := s.spaces[ns.Name]
	from := sp.next
	if from == (partition.Page{}) {
		sp.began, sp.leftOut = s.now().UnixMilli(), 0
	}
	s.mu.Unlock()
	list, next, err := store.Partitions(ctx, ns, from, sweepPage)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now().UnixMilli()
	for _, stats := range list {
		s.put(sp, stats, now)
	}
	sp.next = next
	if next != (partition.Page{}) {
		return false, nil
	}
	for name, r := range sp.rows {
		if r.swept < sp.began { // the pass did not meet it: it has no entries
			s.drop(sp, name)
		}
	}
	sp.completed, sp.took = now, now-sp.began
	sp.findOldest()
	return true, nil
}

// put keeps what was read of a partition.
func (s *sweep) put(sp *spaceSweep, stats partition.Stats, now int64) {
	r := sp.rows[stats.Partition]
	fresh := r == nil
	if fresh {
		if s.known >= s.maxRows && !s.displace(sp, stats, now) {
			sp.leftOut++
			return
		}
		r = &row{}
		sp.rows[stats.Partition] = r
		s.known++
	} else {
		r.rates(stats, now)
	}
	r.Stats = stats
	r.swept = now
	r.oldest = now - stats.OldestAge.Milliseconds()
	r.paused = sp.paused[stats.Partition]
}

func (s *sweep) drop(sp *spaceSweep, name string) {
	delete(sp.rows, name)
	s.known--
}

// displace makes room for a partition with more or older entries than one of a few others.
func (s *sweep) displace(sp *spaceSweep, stats partition.Stats, now int64) bool {
	tried := 0
	for name, r := range sp.rows { // in no order
		if r.Depth < stats.Depth && r.oldest > now-stats.OldestAge.Milliseconds() {
			s.drop(sp, name)
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
func (s *sweep) refresh(ctx context.Context, store Store, all []*partition.Namespace) {
	for i := range all {
		ns := all[(s.turn+i)%len(all)]
		if i == sweepPages || ctx.Err() != nil {
			return
		}
		names := s.top(ns.Name)
		if len(names) == 0 {
			continue
		}
		list, err := store.Describe(ctx, ns, names)
		if err != nil {
			continue
		}
		s.mu.Lock()
		sp, now := s.spaces[ns.Name], s.now().UnixMilli()
		for _, stats := range list {
			s.put(sp, stats, now)
		}
		for _, name := range names {
			if r := sp.rows[name]; r != nil && r.swept < now {
				s.drop(sp, name)
			}
		}
		sp.findOldest()
		s.mu.Unlock()
	}
}

func (sp *spaceSweep) findOldest() {
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
func (s *sweep) top(namespace string) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp, recent := s.spaces[namespace], s.now().Add(-sweepEvery/2).UnixMilli()
	for _, column := range []string{"depth", "oldest_age"} {
		for _, r := range sp.best(order{column: column, descending: true}, s.refreshed) {
			if r.swept < recent && !slices.Contains(names, r.Partition) {
				names = append(names, r.Partition)
			}
		}
	}
	return names
}

// oldest is when the oldest entry of a namespace took place, in Unix ms; 0 where there is
// none, or it is not known.
func (s *sweep) oldest(namespace string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sp := s.spaces[namespace]; sp != nil {
		return sp.oldest
	}
	return 0
}
