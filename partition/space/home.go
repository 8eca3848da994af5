package space

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
)

// A Home is where a namespace lives: its layouts. It outlives changes of the namespace's policy.
type Home struct {
	Name     string
	Required bool // without it a Check fails; else what is wrong with it is a warning
	// Numbered: shards have numbers through all layouts, which are recorded. Otherwise they have those by
	// which this process learned of them.
	Numbered bool
	// Moved is called when this process learns of another layout, or that one was closed; nil: nobody
	// asks. Like Numbered it is set before the home is adopted.
	Moved func()

	wanted   atomic.Int64     // shards as configured: how many a namespace that is new to the store gets
	asked    time.Time        // when Grow asked last
	list     string           // key of the processes that serve it
	self     uint64           // hash of this process, once it is adopted
	clock    backend.Clock    // of the server that holds list
	listed   *backend.Backend // that server's, since this process entered there
	roster   atomic.Pointer[roster]
	drainers atomic.Int32 // of this process
	// Reordered is called when other processes drain it than before; nil: nobody asks. It is set
	// before the home is adopted.
	Reordered func()

	prefix    string
	own       func(*Shard) any
	space     *Space       // nil until it is adopted
	permitted atomic.Int64 // number of the newest layout for which all rights were found
	checking  sync.Mutex
	checked   atomic.Pointer[result] // the last conclusive one; nil: none yet

	mu       sync.Mutex // of changes
	layouts  atomic.Pointer[Layouts]
	resolved atomic.Bool // the store has said of how many shards layout 1 is
	used     atomic.Bool // a check passed once
	changed  chan struct{}
	fencing  sync.Mutex
	unfenced error     // why the last Fence did not reach all shards
	tried    time.Time // when that was
}

// Layouts are the layouts of a namespace, as a process knows them. They never change; what it
// learns makes new ones.
type Layouts struct {
	Record Record
	All    []*Layout // by rising number; the last is where new entries go
	Shards []*Shard  // of all, in the order in which the process learned of them
}

// A Layout is a numbered list of shards.
type Layout struct {
	LayoutRecord
	Shards []*Shard
}

// Auto is the number of shards of a namespace that gets as many as the store has masters.
const Auto = -1

// NewHome makes the home of a namespace, which works once it is adopted. shards may be Auto. own
// makes what the store of the kind keeps of a shard; nil: nothing.
func NewHome(prefix, namespace string, shards int, own func(*Shard) any) *Home {
	h := &Home{Name: namespace, list: prefix + ":{" + namespace + "}:drainers",
		prefix: prefix, own: own, changed: make(chan struct{})}
	h.Want(shards)
	h.layouts.Store(h.extend(&Layouts{}, firstRecord(max(1, shards))))
	return h
}

// Want notes how many shards the configuration says.
func (h *Home) Want(shards int) { h.wanted.Store(int64(shards)) }

// Layouts are the layouts that this process knows now.
func (h *Home) Layouts() *Layouts { return h.layouts.Load() }

// Shards are the shards of all layouts.
func (h *Home) Shards() []*Shard { return h.Layouts().Shards }

// Changed closes when this process learns of another layout, or that one was closed.
func (h *Home) Changed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

// Adopt makes a home one of this Space. It does nothing to one that was adopted before.
func (s *Space) Adopt(h *Home) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.self = hashOf(s.id)
	if h.space != nil {
		return
	}
	h.space = s
	for _, sh := range h.Shards() {
		h.adopt(sh)
	}
}

// adopt gives a shard what the Space has for it.
func (h *Home) adopt(sh *Shard) {
	if h.space != nil {
		sh.Pool = cmp.Or(sh.Pool, h.space.Pool)
		sh.Backend = h.space.at(sh.Pool)
		sh.Breaker = sh.Backend.NewBreaker(sh.Ledger)
		sh.Zone = backend.Slot(sh.Prefix) * h.space.Zones() / backend.Slots
	}
	if h.own != nil {
		sh.Own = h.own(sh)
	}
}

// extend is old with the layouts of a record that old lacks.
func (h *Home) extend(old *Layouts, r Record) *Layouts {
	next := &Layouts{Record: r, Shards: old.Shards[:len(old.Shards):len(old.Shards)]}
	for _, record := range r.Layouts {
		l := &Layout{LayoutRecord: record}
		for _, known := range old.All {
			if known.N == record.N {
				l.Shards = known.Shards
			}
		}
		if l.Shards == nil {
			for i := range record.Shards {
				sh := &Shard{Prefix: backend.ShardPrefix(h.prefix, h.Name, i), Layout: record.N,
					Number: len(next.Shards), Pool: record.Pool}
				if h.Numbered {
					sh.Number = record.First + i
				}
				if record.Tags != nil {
					sh.Prefix = h.prefix + ":{" + h.Name + "." + record.Tags[i] + "}:"
				}
				sh.Ledger = sh.Prefix + "ledger"
				h.adopt(sh)
				l.Shards = append(l.Shards, sh)
				next.Shards = append(next.Shards, sh)
			}
		}
		for _, sh := range l.Shards {
			if l.Abandoned != 0 && sh.Breaker != nil {
				sh.Breaker.Retire()
			}
		}
		next.All = append(next.All, l)
	}
	return next
}

// learn takes up what a record knows that this process does not. It is false where that is
// nothing.
func (h *Home) learn(r Record) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.Layouts()
	joined := old.Record.join(r)
	if joined.Version == old.Record.Version && !joined.knowsMore(old.Record) {
		return false
	}
	h.set(h.extend(old, joined))
	return true
}

// begin replaces what was assumed of layout 1 before the store was asked.
func (h *Home) begin(r Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resolved.Load() {
		return // another was first
	}
	if old, first := h.Layouts(), r.Layouts[0]; old.Record.Layouts[0].Shards == first.Shards &&
		h.Backend() == h.space.at(first.Pool) {
		h.set(h.extend(old, r))
	} else {
		h.set(h.extend(&Layouts{}, r))
	}
	h.resolved.Store(true)
}

// ReviveEvery is how often closed shards are looked at.
const ReviveEvery = time.Minute

// Revive looks into closed shards, where only a failover that lost writes brings something back, and
// the server of a shard that was given up. key is what a shard has while there is something in it.
func (s *Space) Revive(ctx context.Context, h *Home, key func(*Shard) string) {
	pipes := backend.Pipes{}
	active := map[*Shard]*redis.IntCmd{}
	for _, l := range h.Layouts().All {
		if l.Closed == 0 || l.Forgotten != 0 && l.Abandoned == 0 {
			continue
		}
		for _, sh := range l.Shards {
			if !sh.Breaker.Allow() {
				if l.Abandoned != 0 {
					h.revive(sh, false) // else who reads it would wait for it
				}
				continue
			}
			active[sh] = pipes.To(sh.Backend.Background).ZCard(ctx, key(sh))
		}
	}
	_ = pipes.Exec(ctx) // each command has its own error
	for sh, cmd := range active {
		if cmd.Err() == nil {
			h.revive(sh, cmd.Val() > 0)
		}
	}
}

// revive notes whether a shard of a closed layout has entries again.
func (h *Home) revive(sh *Shard, has bool) {
	if sh.revived.Swap(has) == has {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tell(true)
}

func (h *Home) set(next *Layouts) {
	if h.space != nil {
		h.space.changes.Add(1)
		defer h.space.changes.Add(1)
	}
	before := h.layouts.Swap(next)
	asAssumed := before != nil && len(before.All) == 1 && len(next.All) == 1 &&
		slices.Equal(before.Current().Shards, next.Current().Shards)
	h.tell(!asAssumed)
}

// tell tells those who wait that there is something new, and whether entries may lie elsewhere; h.mu is
// held.
func (h *Home) tell(moved bool) {
	close(h.changed)
	h.changed = make(chan struct{})
	if moved && h.Moved != nil {
		h.Moved()
	}
}

// Changes is odd while a home gets other layouts, and another number afterwards. What reads
// the layouts of several homes, or of one several times, and finds the same even number before and
// after, has read what was true at one moment.
func (s *Space) Changes() uint64 { return s.changes.Load() }

// Current is the layout that new entries go to.
func (l *Layouts) Current() *Layout { return l.All[len(l.All)-1] }

// Older are the open layouts before one, oldest first.
func (l *Layouts) Older(than int64) (older []*Layout) {
	for _, o := range l.All {
		if o.N < than && o.Closed == 0 {
			older = append(older, o)
		}
	}
	return older
}

// Open are the layouts that are not closed, oldest first.
func (l *Layouts) Open() []*Layout { return append(l.Older(l.Current().N), l.Current()) }

// open are the shards of the open layouts.
func (l *Layouts) open() (shards []*Shard) {
	for _, o := range l.Open() {
		shards = append(shards, o.Shards...)
	}
	return shards
}

// Backend is that of the pool of the newest layout.
func (h *Home) Backend() *backend.Backend { return h.Layouts().Current().Shards[0].Backend }

// Backends are those of the open layouts of homes that this process has, or that of the Space where
// there is none.
func (s *Space) Backends(homes []*Home) (all []*backend.Backend) {
	for _, h := range homes {
		for _, l := range h.Layouts().Open() {
			if b := l.Shards[0].Backend; !b.IsMissing() && !slices.Contains(all, b) {
				all = append(all, b)
			}
		}
	}
	if len(all) == 0 {
		all = append(all, s.backend)
	}
	return all
}

// Of is the home of a name in the layout.
func (l *Layout) Of(name string) *Shard { return l.Shards[backend.ShardOf(name, len(l.Shards))] }

// Floor is below all sequences that a home in the newest layout may begin with.
func (l *Layouts) Floor() int64 {
	floor := l.Record.Floor
	for _, o := range l.Older(l.Current().N) {
		for _, sh := range o.Shards {
			floor = max(floor, sh.mark.Load())
		}
	}
	return floor
}

// Size is how many shards a layout has.
func (l *Layouts) Size(n int64) int {
	if o := l.Find(n); o != nil {
		return len(o.Shards)
	}
	return len(l.Current().Shards)
}

// Counted are the shards whose ledgers are read: not those of layouts whose sums the record has.
func (l *Layouts) Counted() (counted []*Shard) {
	for _, o := range l.All {
		if o.Sums == nil {
			counted = append(counted, o.Shards...)
		}
	}
	return counted
}

// Abandoned reports whether shards that were given up may come back.
func (l *Layouts) Abandoned() bool {
	return slices.ContainsFunc(l.All, func(o *Layout) bool { return o.Abandoned != 0 })
}

// Replaced are the layouts before the newest in which results of calls that are younger than
// window may be kept at a time, in ms: all open ones, and those that were closed since then.
func (l *Layouts) Replaced(now, window int64) (replaced []*Layout) {
	for _, o := range l.All[:len(l.All)-1] {
		if o.Closed == 0 || o.Closed > now-window {
			replaced = append(replaced, o)
		}
	}
	return replaced
}

// Closed reports whether a layout is.
func (l *Layouts) Closed(n int64) bool {
	o := l.Find(n)
	return o != nil && o.Closed != 0
}

// Find is the layout of a number; nil: this process knows none.
func (l *Layouts) Find(n int64) *Layout {
	for _, o := range l.All {
		if o.N == n {
			return o
		}
	}
	return nil
}
