package space

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua"
	lualayout "github.com/spillway-io/spillway/lua/layout"
	"github.com/spillway-io/spillway/partition/backend"
)

// A namespace gets other shards by a further layout. Nothing is copied: what lies in an older
// layout leaves it by being delivered, evicted or expired. The order of steps makes that safe for
// any number of processes, each of which may know any old record:
//
//  1. the record gets the new layout
//  2. who learns of it fences the shards of the older ones, and only then stores in the new one
//  3. who claims in the new one asks the older ones first whether they have nothing left of a name
//  4. a shard that is fenced and empty is closed, then its layout in the record
//
// DESIGN.md of package partition says what each step rests on.

// Errors of Reshard; each Is backend.ErrUnavailable or backend.ErrIncompatible, too.
var (
	// ErrResharding: an older layout is open still, or another process was first.
	ErrResharding = errors.New("the shards of the namespace are changing")
	// ErrNoPool: this process does not have the pool, or namespaces of this kind stay in theirs.
	ErrNoPool = errors.New("no such pool")
	// ErrNoLayouts: something of the namespace cannot go to other shards; the error names it.
	ErrNoLayouts = errors.New("the namespace keeps its shards")
)

// recordKey holds the record of a namespace.
func (h *Home) recordKey() string { return RecordKey(h.prefix, h.Name) }

// RecordKey is the hash that holds the record of a namespace.
func RecordKey(prefix, namespace string) string { return prefix + ":{" + namespace + "}:layout" }

// Ledgers are those of the shards that take what is new, by the fields of the record of a namespace;
// without any, of so many shards.
func Ledgers(prefix, namespace string, fields map[string]string, shards int) (ledgers []string, err error) {
	record, err := parseRecord(fields)
	if err != nil {
		return nil, backend.Wrap(backend.ErrIncompatible, fmt.Errorf("namespace %s: %w", namespace, err))
	}
	h := NewHome(prefix, namespace, shards, nil)
	h.learn(record)
	for _, sh := range h.Layouts().Current().Shards {
		ledgers = append(ledgers, sh.Ledger)
	}
	return ledgers, nil
}

// resolve asks the store for the records of homes, and of how many shards layout 1 is where there
// is none. It returns what went wrong.
func (s *Space) resolve(ctx context.Context, homes []*Home) map[*Home]error {
	errs := map[*Home]error{}
	for _, h := range homes {
		if err := s.Resolve(ctx, h); err != nil {
			errs[h] = err
		}
	}
	return errs
}

// Resolve has the layouts of a home be those that the store knows. It does nothing the next time.
func (s *Space) Resolve(ctx context.Context, h *Home) error {
	if h.resolved.Load() {
		return nil
	}
	record, err := s.readRecord(ctx, h, s.Pool)
	if err != nil {
		return err
	}
	if len(record.Layouts) == 0 {
		record = firstRecord(max(1, int(h.wanted.Load())))
		for _, l := range s.readLayouts(ctx, []*Home{h}, "", false) {
			if l.err != nil {
				return l.err
			}
			var n int
			if _, err := fmt.Sscan(l.fields["shards"], &n); err == nil && n >= 1 && n <= 1024 {
				record = firstRecord(n)
				break
			}
		}
	}
	if h.begin(record.in(s.Pool)); record.Version == 0 {
		s.recall(ctx, h)
	}
	if h.Backend() != s.backend {
		return s.Refresh(ctx, h) // the copy in the pool that the configuration names may be an old one
	}
	return nil
}

// recall takes up what closed ledgers know, where the record was lost and no process knew it: the
// first shard of each layout keeps it.
func (s *Space) recall(ctx context.Context, h *Home) {
	for i := 0; i < len(h.Layouts().All); i++ {
		first := h.Layouts().All[i].Shards[0]
		text, _ := first.Backend.Background.HGet(ctx, first.Ledger, "record").Bytes() // who is away knows nothing
		if known, err := parseText(text); err == nil && len(known.Layouts) > 0 {
			h.learn(known)
		}
	}
}

// LostRecord is the error where shards are fenced by a layout that nothing names any more.
func (s *Space) LostRecord(h *Home) error {
	return backend.Wrap(backend.ErrUnavailable, fmt.Errorf("namespace %s: its shards were replaced, and the record of it is lost: restore key %s, "+
		"or leave what the unknown shards hold and run spillway reshard --again", h.Name, h.recordKey()))
}

// Fence lets the open shards of older layouts take no entries any more, as far as they can be
// reached, and leaves the record in all. A shard that was fenced stays so; unless again is true it is
// not asked a second time, and shards that were given up are not asked. It returns the first
// error of the others, and whether the process learned of another layout: then the caller begins anew.
func (s *Space) Fence(ctx context.Context, h *Home, again bool) (news bool, err error) {
	h.fencing.Lock()
	defer h.fencing.Unlock()
	if h.unfenced != nil && !again && time.Since(h.tried) < fenceEvery {
		return false, h.unfenced
	}
	defer func() {
		if ctx.Err() == nil { // else it is the caller's end, and nobody else's
			h.unfenced, h.tried = err, time.Now()
		}
	}()
	layouts := h.Layouts()
	current, record := layouts.Current(), layouts.Record
	text, _ := json.Marshal(record.short())
	var shards []*Shard
	var calls []*backend.Call
	for _, l := range layouts.All {
		if l.Closed != 0 && !(again && l.Abandoned != 0) {
			continue
		}
		for _, sh := range l.Shards {
			if again || sh.told.Load() < record.Version || l != current && !sh.Fenced() {
				shards = append(shards, sh)
				calls = append(calls, backend.NewCall(lualayout.Fence, sh.Breaker, []string{sh.Ledger},
					sh.Layout, current.N, record.Version, text, s.Kind.Name))
			}
		}
	}
	s.runApart(ctx, shards, calls)
	for i, c := range calls {
		sh := shards[i]
		if c.Err != nil && layouts.Closed(sh.Layout) {
			continue
		}
		if c.Err != nil {
			err = cmp.Or(err, c.Err)
			continue
		}
		fence, mark, known := c.Rest.Int(), c.Rest.Int(), c.Rest.Bulk()
		if c.Rest.Broken {
			err = cmp.Or(err, c.Misread())
			continue
		}
		sh.told.Store(record.Version)
		if fence > sh.Layout {
			sh.mark.Store(mark)
			sh.fenced.Store(true)
		}
		if other, wrong := parseText(known); wrong == nil && len(other.Layouts) > 0 {
			news = h.learn(other) || news
		}
	}
	return news || h.Layouts() != layouts, err
}

// runApart runs a call for each shard, those of one part of the slots in one pipeline: a master that is
// away, which a pipeline waits for, holds up no call for the others.
func (s *Space) runApart(ctx context.Context, shards []*Shard, calls []*backend.Call) {
	ctx, cancel := context.WithTimeout(ctx, fenceFor)
	defer cancel()
	parts := map[int][]*backend.Call{}
	for i, sh := range shards {
		parts[sh.Zone] = append(parts[sh.Zone], calls[i])
	}
	var running sync.WaitGroup
	for _, calls := range parts {
		running.Go(func() { s.backend.Run(ctx, s.backend.Background, calls) })
	}
	running.Wait()
}

// fenceFor is how long a fence may take. A lane gives a flush 3 s, in which it stores entries, too.
const fenceFor = 2 * time.Second

// fenceEvery is how often shards are tried that could not be reached. Who comes meanwhile gets the last
// error: otherwise each would wait for the lost master, one after the other.
const fenceEvery = 100 * time.Millisecond

// NeedsFence reports whether a shard of an older layout may take entries still, as far as this
// process knows.
func (l *Layouts) NeedsFence() bool {
	for _, o := range l.Older(l.Current().N) {
		for _, sh := range o.Shards {
			if !sh.Fenced() {
				return true
			}
		}
	}
	return false
}

// CloseLayout records that nothing is left in a layout whose shards are all closed.
func (s *Space) CloseLayout(ctx context.Context, h *Home, n, now int64) error {
	return s.Amend(ctx, h, h.Layouts(), n, func(l *LayoutRecord) { l.Closed = cmp.Or(l.Closed, now) })
}

// Amend changes what is recorded of a layout, as long as the record still is that of layouts, by
// which the caller decided. The floor rises above the sequences of its shards. Where another
// process changed the record it takes up that, and ErrResharding is the error.
func (s *Space) Amend(ctx context.Context, h *Home, layouts *Layouts, n int64,
	change func(*LayoutRecord)) error {
	record := layouts.Record.join(Record{})
	for i, l := range layouts.All {
		if l.N != n {
			continue
		}
		change(&record.Layouts[i])
		for _, sh := range l.Shards {
			record.Floor = max(record.Floor, sh.mark.Load())
		}
		if record.Layouts[i].Abandoned != 0 && l.Abandoned == 0 { // not all marks are known
			record.Floor = max(record.Floor, layouts.Floor(), record.Layouts[i].Abandoned*1000) + 2*markAhead
		}
	}
	wrote, err := s.writeRecord(ctx, h, layouts.Current().Shards[0].Backend, layouts.Record.Version, record)
	if err == nil && !wrote {
		_ = s.Refresh(ctx, h)
		err = errAnother
	}
	return err
}

// markAhead is how far a fence is above the sequences of its shard, see fence.lua: more than a
// partition takes in its life.
const markAhead = 1 << 36

var errAnother = backend.Wrap(backend.ErrUnavailable, fmt.Errorf("%w: another process was first", ErrResharding))

// Reshard gives a namespace a further layout of so many shards, on the masters that a pool has
// now; empty: that of its newest layout. by is who asked. Nothing happens where it has as many there
// already, unless they lie unevenly and even is true. Everything that may be missing is looked for before the first write; the
// error says what. With dry it writes nothing. from, unless it is 0, is the layout that the caller looked
// at: where another is the newest by then, that is ErrResharding.
func (s *Space) Reshard(ctx context.Context, h *Home, shards int, pool, by string, even,
	dry bool, from int64) (n int64, err error) {
	if err := s.Usable(ctx, h); err != nil {
		return 0, err
	}
	if err := s.Refresh(ctx, h); err != nil {
		return 0, err
	}
	layouts := h.Layouts()
	current := layouts.Current()
	if from != 0 && current.N != from {
		return 0, errAnother
	}
	pool = cmp.Or(pool, current.Pool)
	to, at := s.at(pool), current.Shards[0].Backend
	if to.IsMissing() {
		return 0, noPool(h, pool)
	}
	moves := to != at
	if current.LayoutRecord.Shards == shards && !even && !moves {
		return current.N, nil
	}
	if older := layouts.Older(current.N); len(older) >= s.Kind.Layouts {
		return 0, backend.Wrap(backend.ErrUnavailable, fmt.Errorf(
			"%w: layout %d has %s still, and is closed once none is left", ErrResharding, older[0].N, s.Kind.Unit))
	}
	first := layouts.Record.numbers()
	if h.Numbered && first+shards > maxNumbers {
		return 0, backend.Wrap(backend.ErrIncompatible, fmt.Errorf("%w: ids name %d shards at most, and %d are used",
			ErrNoLayouts, maxNumbers, first))
	}
	there := int64(0) // version of the copy
	if moves {
		if there, err = s.welcome(ctx, h, pool); err != nil {
			return 0, err
		}
	}
	now, err := to.KnownTime(ctx)
	if err != nil {
		return 0, err
	}
	masters, err := to.SlotsOfMasters(ctx)
	if err != nil {
		return 0, err
	}
	next := newLayout(h.Name, max(current.N+1, now), shards, masters)
	next.Made, next.By, next.Pool = now, by, pool
	if h.Numbered {
		next.First = first
	}
	record := layouts.Record.join(Record{Layouts: []LayoutRecord{next}})
	record.Wanted = max(record.Wanted, int(h.wanted.Load()))
	trial := h.trial(layouts, record)
	if err := s.ready(ctx, h, trial); err != nil || dry {
		return next.N, err
	}
	if moves { // so a process whose configuration names that pool does not take the namespace for a new one
		if _, err := writeCopy(ctx, h, to, there, layouts.Record); err != nil {
			return 0, err
		}
	}
	wrote, err := s.writeRecord(ctx, h, at, layouts.Record.Version, record)
	switch {
	case err != nil:
		return 0, err
	case !wrote:
		_ = s.Refresh(ctx, h)
		return 0, errAnother
	}
	for news := true; news && err == nil; {
		news, err = s.Fence(ctx, h, false)
	}
	if err == nil && moves {
		err = s.Refresh(ctx, h) // the other copies
	}
	return next.N, err
}

// growEvery is how long Grow rests after it asked: what it asks first costs the store some ms.
const growEvery = time.Minute

// Grow asks for the shards that the configuration wants, where it names more than any before. One
// goroutine at a time may call it for a home.
func (s *Space) Grow(ctx context.Context, h *Home, reshard func(shards int) (layout int64, err error)) {
	layouts := h.Layouts()
	have, want := layouts.Current().LayoutRecord.Shards, int(h.wanted.Load())
	auto := want == Auto && layouts.Record.Version == 0
	if !auto && want <= max(have, layouts.Record.Wanted) ||
		len(layouts.Older(layouts.Current().N)) >= s.Kind.Layouts || time.Since(h.asked) < growEvery {
		return
	}
	h.asked = time.Now()
	var n int64
	var err error
	if auto {
		want, err = s.decide(ctx, h)
	}
	log := s.Log.With(zap.String("namespace", h.Name), zap.Int("shards", have), zap.Int("configured", want))
	if err == nil && want > have {
		n, err = reshard(want)
	}
	switch {
	case auto && errors.Is(err, ErrResharding): // another process decided
	case err != nil:
		log.Warn("namespace keeps its shards for now", zap.Error(err))
	case n > 0:
		log.Info("namespace gets more shards, as configured", zap.Int64("layout", n))
	}
}

// decide says of how many shards a namespace without a record shall be: of as many as a cluster has
// masters, or of those that it has where they are not fewer. That is recorded then, so that it holds.
func (s *Space) decide(ctx context.Context, h *Home) (shards int, err error) {
	if err := s.Usable(ctx, h); err != nil {
		return 0, err
	}
	masters, err := h.Backend().SlotsOfMasters(ctx)
	if err != nil {
		return 0, err
	}
	record := h.Layouts().Record
	if have := record.current().Shards; len(masters) <= have {
		_, err = s.writeRecord(ctx, h, h.Backend(), 0, record)
		return have, err
	}
	return len(masters), nil
}

// trial is what the layouts would be with a record.
func (h *Home) trial(old *Layouts, r Record) *Layouts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.extend(old, r)
}

// ready asks whether all shards that a namespace would have can be used: they answer, are not
// full, and the user has all rights.
func (s *Space) ready(ctx context.Context, h *Home, l *Layouts) error {
	open := l.open()
	if err := s.explainRights(ctx, []*Home{h}, s.tryRights(ctx, h.Name, open)); err != nil {
		return err
	}
	// The probe of the rights begins with a DEL, after which a full store rejects nothing.
	pipes := backend.Pipes{}
	for _, sh := range open {
		if !sh.Backend.Embedded() {
			pipes.To(sh.Backend.Background).Set(ctx, sh.Prefix+"probe", "", time.Millisecond)
		}
	}
	return backend.Classify(pipes.Exec(ctx))
}

// Scripts are those that a home with layouts needs beside its kind's.
func Scripts(own []*lua.Script) []*lua.Script { return slices.Concat(own, lualayout.All()) }
