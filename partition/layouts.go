package partition

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	lualayout "github.com/spillway-io/spillway/lua/layout"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

// maxMoves is how often a call begins anew because it learned of another layout. There is one
// per reshard, and the next has to wait until the older layout is empty.
const maxMoves = 5

// errMoving: the shards of the namespace changed while a call was under way.
var errMoving = backend.Wrap(ErrUnavailable, errors.New("the shards of the namespace are changing"))

// fencedOff reports whether a shard rejected a produce because another process knows a newer layout,
// and the record that came with the answer.
func fencedOff(c *backend.Call) (record []byte, fenced bool) {
	if c.Err != nil {
		return nil, false
	}
	at := c.Rest
	if c.More != 2 || at.IsBulk() || at.Int() != -1 {
		return nil, false
	}
	record = at.Bulk()
	return record, !at.Broken
}

// learn takes up a record; the groups are to be sent again, or they have the error.
func (s *Store) learn(ctx context.Context, ns *Namespace, record []byte, groups []*Group) {
	err := cmp.Or(s.space.Learn(ctx, ns.home, record), errMoving)
	if newest := ns.home.Layouts().Current().N; newest == groups[0].at.Layout && errors.Is(err, errMoving) {
		err = s.space.LostRecord(ns.home)
	}
	for _, g := range groups {
		g.Err = err
	}
}

// fence makes sure that no shard of an older layout takes entries any more. Its error is that of
// the first shard that cannot be reached.
func (s *Store) fence(ctx context.Context, ns *Namespace) error {
	for range maxMoves {
		if !ns.home.Layouts().NeedsFence() {
			return nil
		}
		news, err := s.space.Fence(ctx, ns.home, false)
		if err != nil {
			return err
		}
		if !news {
			return nil
		}
	}
	return errMoving
}

// findHomes finds where each group is stored. It returns those to send: the others have their
// results or errors. Nothing is stored in a new home before the older ones of the partition
// take nothing any more, and a key that an older one knows stores nothing.
func (s *Store) findHomes(ctx context.Context, groups []*Group, window time.Duration) []*Group {
	for {
		before := s.space.Changes()
		several, fenced := false, map[*Namespace]bool(nil)
		for _, g := range groups {
			layouts := g.Namespace.home.Layouts()
			g.at = own(layouts.Current().Of(g.Partition))
			if len(layouts.All) == 1 {
				continue
			}
			several = true
			if layouts.NeedsFence() && !fenced[g.Namespace] {
				if fenced == nil {
					fenced = map[*Namespace]bool{}
				}
				fenced[g.Namespace] = true
				_ = s.fence(ctx, g.Namespace) // those that it could not reach stay open below
			}
		}
		if after := s.space.Changes(); before != after || before%2 != 0 {
			continue
		}
		if !several {
			return groups
		}
		return s.resultsOfBefore(ctx, groups, window)
	}
}

// resultsOfBefore leaves out the groups whose older homes take entries still, and those whose key
// an older home knows.
func (s *Store) resultsOfBefore(ctx context.Context, groups []*Group, window time.Duration) []*Group {
	out := map[*Group]bool{}
	var calls []*backend.Call
	var asks []*Group
	for _, g := range groups {
		layouts := g.Namespace.home.Layouts()
		for _, l := range layouts.Older(g.at.Layout) {
			if at := l.Of(g.Partition); !at.Fenced() {
				g.Err, out[g] = backend.ErrUnreachable, true
			}
		}
		if !out[g] && g.IdempotencyKey != "" {
			now, _ := g.Namespace.Now()
			for _, l := range layouts.Replaced(now, window.Milliseconds()) {
				at := own(l.Of(g.Partition))
				if l.Sums != nil && !at.Breaker.Allow() {
					continue // it may never answer again
				}
				calls = append(calls, backend.NewCall(lualayout.Result, at.Breaker, []string{at.resultOf(g)}))
				asks = append(asks, g)
			}
		}
	}
	if len(calls) > 0 {
		// Durably, because a repeat must not be acknowledged before replicas have what it repeats.
		s.backend.RunDurably(ctx, s.backend.In, calls)
	}
	for i, c := range calls {
		g := asks[i]
		switch {
		case g.Repeated:
		case c.Err != nil:
			g.Err, out[g] = c.Err, true
		case c.More > 0:
			text := string(c.Rest.Bulk())
			g.Err, g.Repeated, out[g] = c.Unconfirmed, true, true
			if _, err := fmt.Sscanf(text, "%d %d %d", &g.Accepted, &g.Evicted, &g.Depth); err != nil {
				g.Err = backend.Wrap(ErrBroken, errors.New("the idempotency key holds a foreign value"))
			}
		}
	}
	if len(out) == 0 {
		return groups
	}
	var left []*Group
	for _, g := range groups {
		if !out[g] {
			left = append(left, g)
		} else if g.Err != nil {
			s.backend.CountError(g.Err)
		}
	}
	return left
}

// resultOf is the key of the result of a group.
func (sh *shard) resultOf(g *Group) string {
	sum := sha256.Sum256([]byte(g.IdempotencyKey))
	return sh.produceResult(g.Partition, hex.EncodeToString(sum[:16]))
}

// Bounds of how long a partition waits for an older home, in ms.
const minPutOff, maxPutOff = 100, 1000

// goneClosed: a shard is closed. It still has its pauses, which may have been copied and resumed since.
const goneClosed = 2

// gone leaves out the claims of partitions that have entries in an older layout, and puts these
// partitions off.
func (s *Store) gone(ctx context.Context, claims []*ClaimResult) []*ClaimResult {
	waiting := map[*shard][]*ClaimResult{} // by older home
	for _, c := range claims {
		for _, l := range c.Namespace.home.Layouts().Older(c.at.Layout) {
			if older := own(l.Of(c.Partition)); !older.Drained.Load() {
				waiting[older] = append(waiting[older], c)
			}
		}
	}
	if len(waiting) == 0 {
		return claims
	}
	var calls []*backend.Call
	var shards []*shard
	var asked [][]*ClaimResult
	for older, items := range waiting {
		if !older.Fenced() {
			_ = s.fence(ctx, items[0].Namespace)
		}
		keys, argv := []string{older.Ledger, older.ready}, []any{older.Layout}
		for _, c := range items {
			keys, argv = append(keys, older.list(c.Partition)), append(argv, c.Partition)
		}
		calls = append(calls, backend.NewCall(lualayout.Gone, older.Breaker, keys, argv...))
		shards, asked = append(shards, older), append(asked, items)
	}
	s.backend.Run(ctx, s.backend.Out, calls)
	held := map[*ClaimResult]bool{}
	off := map[*shard][]any{}
	for i, call := range calls {
		left := int64(-1)
		if call.Err == nil {
			left = call.Rest.Int()
		}
		closed := left == goneClosed
		if closed {
			call.Err = s.closeShard(ctx, asked[i][0].Namespace, shards[i])
		} else {
			shards[i].Drained.Store(left == 0 && !call.Rest.Broken)
		}
		for _, c := range asked[i] {
			due := int64(0)
			if left >= 0 && !closed {
				due = call.Rest.Int()
			}
			switch {
			case errors.Is(call.Err, ErrBroken):
				c.Err = call.Err
			case call.Err != nil:
				// Its older home cannot be asked now. It must not stand before partitions whose homes can.
				off[c.at] = append(off[c.at], maxPutOff, c.Partition)
			case call.Rest.Broken:
				c.Err = call.Misread()
			case left >= 0 && due == 0:
				continue
			default:
				off[c.at] = append(off[c.at], min(max(due-call.Now, minPutOff), maxPutOff), c.Partition)
			}
			held[c] = true
		}
	}
	s.putOff(ctx, off)
	free := claims[:0]
	for _, c := range claims {
		if !held[c] {
			free = append(free, c)
		}
	}
	return free
}

// putOff lets partitions wait. It is not needed: without it they are asked for sooner.
func (s *Store) putOff(ctx context.Context, off map[*shard][]any) {
	var calls []*backend.Call
	for sh, argv := range off {
		calls = append(calls, backend.NewCall(lualayout.PutOff, sh.Breaker, []string{sh.ready}, argv...))
	}
	s.backend.Run(ctx, s.backend.Out, calls)
}

// closeShard ends a shard of an older layout where nothing is left in it, and gives its pauses to the
// newest. Its error is errNotEmpty while something is left.
func (s *Store) closeShard(ctx context.Context, ns *Namespace, sh *shard) error {
	c := closing(sh, false)
	s.backend.Run(ctx, s.backend.Background, []*backend.Call{c})
	pauses, err := pausesOfClosed(c)
	if err == nil {
		err = s.adoptPauses(ctx, ns, sh, pauses)
	}
	if err == nil {
		sh.Drained.Store(true)
	}
	return err
}

// closing is the call that ends a shard; with force also one whose ledger does not add up.
func closing(sh *shard, force bool) *backend.Call {
	forced := 0
	if force {
		forced = 1
	}
	return backend.NewCall(lualayout.Close, sh.Breaker, []string{sh.Ledger, sh.ready}, sh.Layout, forced)
}

// pausesOfClosed reads the answer of closing: the pauses of the shard by their names, or errNotEmpty.
func pausesOfClosed(c *backend.Call) (pauses map[string]string, err error) {
	if c.Err != nil {
		return nil, c.Err
	}
	if c.Rest.Int() != 1 {
		return nil, errNotEmpty
	}
	c.Rest.Int() // the mark, which the fence brought
	pauses = map[string]string{}
	for range (c.More - 2) / 2 {
		name := string(c.Rest.Bulk())
		pauses[name] = string(c.Rest.Bulk())
	}
	if c.Rest.Broken {
		return nil, c.Misread()
	}
	return pauses, nil
}

// adoptPauses gives the pauses of a closed shard to the newest layout.
func (s *Store) adoptPauses(ctx context.Context, ns *Namespace, sh *shard,
	pauses map[string]string) error {
	current := ns.home.Layouts().Current()
	texts := map[*shard][]any{}
	for name, text := range pauses {
		homes := current.Shards
		if name != pauseAll {
			homes = []*space.Shard{current.Of(name)}
		}
		for _, at := range homes {
			texts[own(at)] = append(texts[own(at)], name, text)
		}
	}
	var calls []*backend.Call
	for to, texts := range texts {
		calls = append(calls, backend.NewCall(lualayout.AdoptPauses, to.Breaker,
			[]string{to.Ledger}, append([]any{sh.Prefix}, texts...)...))
	}
	s.backend.Run(ctx, s.backend.Background, calls)
	for _, c := range calls {
		if c.Err != nil {
			return c.Err
		}
	}
	return nil
}

// trimPage is how many partitions of an older shard are looked at a second.
const trimPage = 200

// trim keeps the bound of partitions that lie in two layouts: a page of those of an older shard, all of
// them in turn.
func (s *Store) trim(ctx context.Context, ns *Namespace, sh *shard) {
	current := ns.home.Layouts().Current()
	from := sh.trimmed.Load()
	names, err := sh.Backend.Background.ZRange(ctx, sh.ready, from, from+trimPage-1).Result()
	if sh.Breaker.Done(backend.Classify(err)); err != nil {
		return
	}
	if from += trimPage; len(names) < trimPage {
		from = 0
	}
	sh.trimmed.Store(from)
	pipes := backend.Pipes{}
	var older, newer []*redis.IntCmd
	for _, name := range names {
		to := own(current.Of(name))
		older = append(older, pipes.To(sh.Backend.Background).LLen(ctx, sh.list(name)))
		newer = append(newer, pipes.To(to.Backend.Background).LLen(ctx, to.list(name)))
	}
	_ = pipes.Exec(ctx) // each command has its own error
	var calls []*backend.Call
	for i, name := range names {
		if newer[i].Err() != nil || older[i].Val()+newer[i].Val() <= int64(ns.Policy.Capacity) {
			continue
		}
		keep := max(0, int64(ns.Policy.Capacity)-newer[i].Val())
		calls = append(calls, backend.NewCall(lualayout.Trim, sh.Breaker,
			[]string{sh.ready, sh.Ledger, sh.list(name), sh.meta(name)}, name, sh.Layout, keep))
	}
	s.backend.Run(ctx, s.backend.Background, calls)
}

// errNotEmpty: a shard has entries or pauses still.
var errNotEmpty = errors.New("the shard is not empty")

// growAsConfigured asks for the shards that the configuration wants, where it names more than
// any before.
func (s *Store) growAsConfigured(ctx context.Context, ns *Namespace) {
	s.space.Grow(ctx, ns.home, func(shards int) (int64, error) {
		return s.space.Reshard(ctx, ns.home, shards, "", "configuration", false, false, 0)
	})
}

// revive looks for entries in closed shards. They are delivered then, or expire; their order is not
// promised.
func (s *Store) revive(ctx context.Context, ns *Namespace) {
	s.space.Revive(ctx, ns.home, func(at *space.Shard) string { return own(at).ready })
}

// tidyLayouts does what is next for the layouts of a namespace: it fences, also shards that lost
// their fence in a failover, trims, and closes what is empty. Any process may do it; each step may
// be done twice.
func (s *Store) tidyLayouts(ctx context.Context, ns *Namespace, now int64) {
	layouts := ns.home.Layouts()
	older := layouts.Older(layouts.Current().N)
	if len(older) == 0 && !layouts.Abandoned() {
		return
	}
	if news, err := s.space.Fence(ctx, ns.home, true); news || err != nil || len(older) == 0 {
		return
	}
	closed := true
	for _, at := range older[0].Shards {
		s.trim(ctx, ns, own(at))
		closed = s.closeShard(ctx, ns, own(at)) == nil && closed
	}
	if !closed {
		return
	}
	if err := s.space.CloseLayout(ctx, ns.home, older[0].N, now); err == nil {
		s.log.Info("older layout is empty and closed", zap.String("namespace", ns.Name),
			zap.Int64("layout", older[0].N))
	}
}
