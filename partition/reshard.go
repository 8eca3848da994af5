package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

// ErrResharding is ErrUnavailable because an older layout has entries still, or because another
// process was first.
var ErrResharding = space.ErrResharding

// ErrNoLayouts is ErrIncompatible because something of the namespace cannot go to other shards, which the
// error names.
var ErrNoLayouts = space.ErrNoLayouts

// ReshardRequest is other shards for a namespace.
type ReshardRequest struct {
	Shards int    // 1 to 1024
	Pool   string // to move the namespace there: see Config.Pools; default empty, that of its newest layout
	By     string // who asks, for the record; up to 128 bytes
	// Again makes a layout of as many shards as there are, to spread them over the masters that
	// there are now; default false: then nothing happens.
	Again  bool
	DryRun bool // look whether it could be done, and write nothing
}

// Validate returns a *FieldError where a field is outside its bounds.
func (r ReshardRequest) Validate() error {
	switch {
	case r.Shards < 1 || r.Shards > maxShards:
		return Wrong("shards", r.Shards, "1 to 1024")
	case len(r.By) > maxPauseBy:
		return Wrong("by", "a name of "+strconv.Itoa(len(r.By))+" bytes", strconv.Itoa(maxPauseBy)+" bytes at most")
	}
	return nil
}

// Reshard gives a namespace another number of shards while it serves. New entries go to the new
// shards from the answer on; what lies in the old ones is delivered from there, in order. It returns
// the number of the layout that new entries go to. Nothing is written where the store is
// full, a right is missing or a master does not answer. Repeating it is safe. Errors: *FieldError,
// ErrResharding and those of the store.
func (verbs) Reshard(ctx context.Context, ns *Namespace, r ReshardRequest) (layout int64, err error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	if err := ns.store.ensureCompatible(ctx); err != nil {
		return 0, err
	}
	return ns.store.space.Reshard(ctx, ns.home, r.Shards, r.Pool, r.By, r.Again, r.DryRun, 0)
}

// LayoutInfo describes a layout of a namespace.
type LayoutInfo struct {
	N       int64     `json:"n"` // rising, and never used twice; 1 is that of a namespace whose shards never changed
	Shards  int       `json:"shards"`
	Current bool      `json:"-"`              // new entries go there
	Closed  bool      `json:"-"`              // nothing is left in it but dead letters
	Since   time.Time `json:"-"`              // when it was made, or closed; zero for layout 1 while it is open
	By      string    `json:"by,omitempty"`   // who asked for it
	Pool    string    `json:"pool,omitempty"` // it lies there; empty where there is one
	Fenced  int       `json:"fenced"`         // of its shards: those that take no new entries any more
	Empty   int       `json:"empty"`          // of its shards: those without entries
	Away    int       `json:"away,omitempty"` // of its shards: those that do not answer, of which nothing is counted
	// Forgotten and Abandoned: see LayoutEnd. Its shards are not read then.
	Forgotten bool `json:"-"`
	Abandoned bool `json:"-"`

	Entries    int64         `json:"entries"`
	Partitions int64         `json:"partitions"`
	Names      []string      `json:"queues,omitempty"` // of queues: some of those that keep an older layout open, dead letters included
	OldestAge  time.Duration `json:"-"`                // of the oldest entry of the partition of each shard that is looked at next, in whole ms; 0: there is none
}

// State is one word for that: current, older, closed, forgotten or abandoned.
func (l LayoutInfo) State() string {
	switch {
	case l.Current:
		return "current"
	case l.Forgotten:
		return "forgotten"
	case l.Abandoned:
		return "abandoned"
	case l.Closed:
		return "closed"
	}
	return "older"
}

// DescribeLayout is what the record says of a layout.
func DescribeLayout(l *space.Layout, current bool) LayoutInfo {
	info := LayoutInfo{N: l.N, Shards: len(l.Shards), Current: current, Closed: l.Closed != 0, By: l.By, Pool: l.Shards[0].Pool,
		Forgotten: l.Forgotten != 0, Abandoned: l.Abandoned != 0}
	if since := max(l.Made, l.Closed); since > 0 {
		info.Since = time.UnixMilli(since)
	}
	return info
}

// Layouts describes the layouts of a namespace, the oldest first. Errors: ErrTooManyReads where no
// read slot is free within 1s, and those of the store.
func (verbs) Layouts(ctx context.Context, ns *Namespace) (list []LayoutInfo, err error) {
	s := ns.store
	if err := s.ensureCompatible(ctx); err != nil {
		return nil, err
	}
	err = s.ledgerReads.Do(ctx, func() error {
		list, err = s.layouts(ctx, ns)
		return err
	})
	return list, err
}

func (s *Store) layouts(ctx context.Context, ns *Namespace) (list []LayoutInfo, err error) {
	now, err := ns.backend().KnownTime(ctx)
	if err != nil {
		return nil, err
	}
	layouts := ns.home.Layouts()
	all := s.readShards(ctx, layouts.Counted())
	for _, sh := range layouts.Current().Shards {
		if err := all[sh].err; err != nil {
			return nil, err
		}
	}
	ages, err := s.oldest(ctx, now, all)
	if err != nil {
		return nil, err
	}
	for _, l := range layouts.All {
		info := DescribeLayout(l, l == layouts.Current())
		for _, sh := range l.Shards {
			r := all[sh]
			if r == nil {
				continue
			}
			if r.err != nil {
				info.Away++
				continue
			}
			left := ledgerOf(r.field).stored()
			info.Entries += left
			info.Partitions += r.active
			if left == 0 && r.active == 0 {
				info.Empty++
			}
			if r.field("fence") > l.N {
				info.Fenced++
			}
			info.OldestAge = max(info.OldestAge, ages[sh])
		}
		list = append(list, info)
	}
	return list, nil
}

// A shardReading is what one shard holds.
type shardReading struct {
	fields       map[string]string // of its ledger
	active, dead int64             // partitions with entries, and dead letters
	first        string            // the partition that is looked at next; empty: there is none
	due          int64             // when that is, ms
	err          error
}

func (r *shardReading) field(name string) int64 {
	n, _ := strconv.ParseInt(r.fields[name], 10, 64)
	return n
}

// readShards reads shards. One that does not answer has an error and hides none of the others.
func (s *Store) readShards(ctx context.Context, shards []*space.Shard) map[*space.Shard]*shardReading {
	all := map[*space.Shard]*shardReading{}
	pipes := backend.Pipes{}
	var read []func()
	for _, at := range shards {
		r := &shardReading{}
		if all[at] = r; !at.Breaker.Allow() {
			r.err = backend.ErrUnreachable
			continue
		}
		sh, pipe := own(at), pipes.To(at.Backend.Background)
		ledger := pipe.HGetAll(ctx, sh.Ledger)
		active := pipe.ZCard(ctx, sh.ready)
		first := pipe.ZRangeWithScores(ctx, sh.ready, 0, 0)
		dead := pipe.LLen(ctx, sh.dead)
		read = append(read, func() {
			r.fields = ledger.Val()
			r.active = active.Val()
			r.dead = dead.Val()
			for _, z := range first.Val() {
				r.first, r.due = fmt.Sprint(z.Member), int64(z.Score)
			}
			letters := dead.Err()
			if backend.IsWrongType(letters) {
				letters = nil // a foreign value hides the dead letters only
			}
			r.err = backend.Classify(cmp.Or(ledger.Err(), active.Err(), first.Err(), letters))
			if r.fields == nil {
				r.err = cmp.Or(r.err, backend.ErrUnavailable) // no connection was made
			}
			if r.err == nil {
				sh.seen.Store(&r.fields)
			}
		})
	}
	_ = pipes.Exec(ctx) // each command has its own error
	for _, f := range read {
		f()
	}
	return all
}

// oldest is the age of the oldest entry of the first partition of each shard.
func (s *Store) oldest(ctx context.Context, now int64,
	read map[*space.Shard]*shardReading) (map[*space.Shard]time.Duration, error) {
	pipes := backend.Pipes{}
	heads := map[*space.Shard]*redis.StringCmd{}
	for sh, r := range read {
		if r.err == nil && r.first != "" {
			heads[sh] = pipes.To(sh.Backend.Background).LIndex(ctx, own(sh).list(r.first), 0)
		}
	}
	ages := map[*space.Shard]time.Duration{}
	if err := pipes.Exec(ctx); err != nil && !backend.IsWrongType(err) {
		return nil, backend.Classify(err)
	}
	for sh, cmd := range heads {
		if e, err := ParseEntry([]byte(cmd.Val())); err == nil {
			ages[sh] = time.Duration(max(0, now-e.Occurred)) * time.Millisecond
		}
	}
	return ages, nil
}

var (
	// ErrNoLayout: the namespace has no layout of this number.
	ErrNoLayout = errors.New("no such layout")
	// ErrLayoutInUse: the layout is in a state, or holds something, that is in the way.
	ErrLayoutInUse = errors.New("the layout is in use")
)

// LayoutEnd ends a layout that new entries do not go to.
type LayoutEnd struct {
	N int64 // of the layout
	// Abandon gives up a layout whose Redis is lost, or an open one whose ledgers do not add up.
	// Default false: a closed layout is forgotten.
	Abandon bool
	DryRun  bool // look whether it could be done, and change nothing
	// Unseen abandons also where this process never read the ledger of a shard that is away.
	Unseen bool
	// Gone forgets an abandoned layout without a look: its Redis never comes back. Default false:
	// all its shards have to answer and be empty.
	Gone bool
	// Confirm is what a dry run said: where more would be lost, nothing is. nil: whatever it is.
	Confirm *LostLayout
}

// LostLayout is what a layout was given up with; all but Shards is 0 for one that is forgotten.
type LostLayout struct {
	Shards  int   `json:"shards"`       // of the layout
	Away    int   `json:"away"`         // of these: those that do not answer
	Unseen  int   `json:"unseen"`       // of those away: this process never read their ledgers, so nothing of them is counted
	Entries int64 `json:"entries"`      // they were stored there, or the ledgers do not say where they went
	Dead    int64 `json:"dead_letters"` // in those away
}

// worse reports whether more is lost than in another.
func (l LostLayout) worse(than LostLayout) bool {
	return l.Away > than.Away || l.Unseen > than.Unseen || l.Entries > than.Entries || l.Dead > than.Dead
}

// Fields of the sums of a layout that say what it was given up with.
const (
	sumAway    = "given_up_shards"
	sumUnseen  = "given_up_unseen"
	sumEntries = "given_up_entries"
	sumDead    = "given_up_dead"
)

func lostOf(l *space.Layout) LostLayout {
	return LostLayout{
		Shards:  len(l.Shards),
		Away:    int(l.Sums[sumAway]),
		Unseen:  int(l.Sums[sumUnseen]),
		Entries: l.Sums[sumEntries],
		Dead:    l.Sums[sumDead],
	}
}

// EndLayout has nobody read the shards of a layout any more. The record of the namespace gets the
// totals of their ledgers, so its account goes on from there. The ledgers stay, and reject
// those who know no newer layout.
//
// Where the layout is abandoned, the totals of shards that do not answer are what this process
// read last, and what was stored there counts as lost. Once such a server is back its shards are
// fenced, also where the layout was forgotten; what they hold is delivered, in no order, and not
// counted again. It needs no Check that passed: a process that began after the loss may do it.
//
// Repeating it is safe: of a layout that was abandoned it returns what was recorded. Errors:
// ErrNoLayout, ErrLayoutInUse, ErrResharding and those of the store.
func (verbs) EndLayout(ctx context.Context, ns *Namespace, r LayoutEnd) (lost LostLayout, err error) {
	s := ns.store
	if _, err := s.space.Known(ns.home); err != nil {
		return lost, err
	}
	if err := s.space.Resolve(ctx, ns.home); err != nil {
		return lost, err
	}
	if err := s.space.Refresh(ctx, ns.home); err != nil {
		return lost, err
	}
	layouts := ns.home.Layouts()
	l := layouts.Find(r.N)
	if l == nil {
		return lost, fmt.Errorf("%w: %d", ErrNoLayout, r.N)
	}
	lost.Shards = len(l.Shards)
	switch {
	case l == layouts.Current():
		return lost, inUse(l, "takes new entries: reshard first")
	case r.Abandon && l.Abandoned != 0:
		return lostOf(l), nil
	case r.Abandon && l.Forgotten != 0:
		return lost, inUse(l, "is forgotten")
	case !r.Abandon && l.Closed == 0:
		return lost, inUse(l, "is not closed")
	case l.Forgotten != 0 && l.Sums != nil:
		return lost, nil
	case r.Gone && l.Abandoned == 0:
		return lost, inUse(l, "was not abandoned: its totals are in its shards only")
	}
	now, err := ns.backend().KnownTime(ctx)
	if err != nil {
		return lost, err
	}
	sums := l.Sums
	if !r.Gone {
		added, err := s.sumUp(ctx, ns, l, r, &lost)
		if err != nil {
			return lost, err
		}
		if sums == nil {
			sums = added
		}
	}
	if !r.Abandon {
		lost = LostLayout{Shards: len(l.Shards)}
	}
	switch {
	case r.Abandon && l.Closed != 0 && lost.Away == 0:
		return lost, inUse(l, "is closed, and all its shards answer: forget it")
	case r.DryRun:
		return lost, nil
	case lost.Unseen > 0 && !r.Unseen:
		return lost, inUse(l, fmt.Sprintf("has %d shards that are away and that this process never read: "+
			"ask a process that runs for longer, or count nothing of them (unseen)", lost.Unseen))
	case r.Confirm != nil && lost.worse(*r.Confirm):
		return lost, inUse(l, "would lose more than what was confirmed: look again with a dry run")
	}
	return lost, s.space.Amend(ctx, ns.home, layouts, r.N, func(l *space.LayoutRecord) {
		if l.Sums = sums; r.Abandon {
			l.Closed, l.Abandoned = cmp.Or(l.Closed, now), now
		} else {
			l.Forgotten = now
		}
	})
}

func inUse(l *space.Layout, why string) error {
	return fmt.Errorf("%w: layout %d %s", ErrLayoutInUse, l.N, why)
}

// sumUp adds up the ledgers of a layout, which never change again: it closes the shards.
func (s *Store) sumUp(ctx context.Context, ns *Namespace, l *space.Layout, r LayoutEnd,
	lost *LostLayout) (map[string]int64, error) {
	var calls []*backend.Call
	force := r.Abandon || l.Abandoned != 0
	if force && !r.DryRun {
		_, _ = s.space.Fence(ctx, ns.home, true) // as far as they can be reached
	}
	if !r.DryRun {
		for _, at := range l.Shards {
			calls = append(calls, closing(own(at), force))
		}
	}
	s.backend.Run(ctx, s.backend.Background, calls)
	unclosed := map[*space.Shard]bool{}
	for i, c := range calls {
		sh := own(l.Shards[i])
		pauses, err := pausesOfClosed(c)
		unclosed[l.Shards[i]] = err != nil
		switch seen := sh.seen.Load(); {
		case errors.Is(err, errNotEmpty):
			return nil, inUse(l, hasEntries)
		case !r.Abandon && err != nil:
			return nil, err
		case l.Closed != 0:
			continue // they were copied when it was closed
		case err != nil && seen != nil:
			pauses = pausesIn(*seen)
		}
		if err := s.adoptPauses(ctx, ns, sh, pauses); err != nil {
			return nil, err
		}
	}
	sums, letters := map[string]int64{}, int64(0)
	for at, read := range s.readShards(ctx, l.Shards) {
		switch seen := own(at).seen.Load(); {
		case read.err == nil && read.active > 0:
			return nil, inUse(l, hasEntries)
		case read.err == nil && !unclosed[at]:
			letters += read.dead
		case !r.Abandon:
			return nil, read.err
		case seen == nil:
			lost.Away++
			lost.Unseen++
		default:
			lost.Away++
			read.fields = *seen
			lost.Dead += read.field("dead_count")
		}
		for _, name := range sumFields {
			sums[name] += read.field(name)
		}
		left := ledgerOf(read.field).stored()
		sums["lost_count"] += max(0, left)
		sums["accepted"] += max(0, -left)
		lost.Entries += max(0, left)
	}
	sums[sumAway], sums[sumUnseen] = int64(lost.Away), int64(lost.Unseen)
	sums[sumEntries], sums[sumDead] = lost.Entries, lost.Dead
	if letters > 0 {
		return nil, inUse(l, fmt.Sprintf("has %d dead letters: replay or delete them first", letters))
	}
	return sums, nil
}

const hasEntries = "has entries in shards that answer: they are delivered or expire, or purge drops them"
