package job

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

// A namespace gets other shards while it serves by a further layout: see package space. No job
// moves. Jobs stay in their shard until they end, because their ids name it. So
//
//   - a publish goes to the newest layout, once no older home of its queue takes jobs any more, and none of
//     them knows its keys or its caller's id
//   - a claim in a newer layout takes nothing of a queue that has a ready job in an older one
//   - whatever names a job goes to the shard that its id names

// maxMoves is how often a publish begins anew because the process learned of another layout.
const maxMoves = 5

// errMoving: the shards of the namespace changed while a request was under way.
var errMoving = backend.Wrap(backend.ErrUnavailable, errors.New("the shards of the namespace are changing"))

// A placement is the shards of a namespace, as this process knows them.
type placement struct {
	layouts *space.Layouts
	shards  []*shard // of all layouts
	numbers []*shard // by number; nil: unknown
	alone   [][]int  // the number i alone
}

// placed returns the placement by what the process knows now.
func (h *home) placed() *placement {
	layouts := h.Layouts()
	if p := h.placement.Load(); p != nil && p.layouts == layouts {
		return p
	}
	p := &placement{layouts: layouts}
	for _, at := range layouts.Shards {
		sh := at.Own.(*shard)
		p.shards = append(p.shards, sh)
		for len(p.numbers) <= sh.Number {
			p.alone = append(p.alone, []int{len(p.numbers)})
			p.numbers = append(p.numbers, nil)
		}
		p.numbers[sh.Number] = sh
	}
	h.placement.Store(p)
	return p
}

// shard is that of a number; nil: this process knows none.
func (h *home) shard(number int) *shard {
	if p := h.placed(); number < len(p.numbers) {
		return p.numbers[number]
	}
	return nil
}

// open are the shards that may hold jobs: of layouts that are not closed, and revived ones.
func (h *home) open() (open []*shard) {
	p := h.placed()
	if len(p.layouts.All) == 1 {
		return p.shards
	}
	for _, l := range p.layouts.All {
		for _, at := range l.Shards {
			if l.Closed == 0 || at.Revived() {
				open = append(open, p.numbers[at.Number])
			}
		}
	}
	return open
}

// newest are the shards that take new jobs, and have the schedules.
func (h *home) newest() []*shard {
	p := h.placed()
	newest := p.layouts.Current().Shards
	return p.numbers[newest[0].Number:][:len(newest)]
}

// Placement changes whenever Shards or Homes may be others for all queues.
func (n *Namespace) Placement() any { return n.Layouts() }

// Shards is where jobs of a queue may be, each once, those of the oldest layout first. The
// caller must not change it.
func (n *Namespace) Shards(queue string) []int {
	p := n.placed()
	current := p.layouts.Current()
	if len(p.layouts.All) == 1 {
		return n.within(p, current, queue)
	}
	var list []int
	for _, l := range p.layouts.All {
		for _, number := range n.within(p, l, queue) {
			if sh := p.numbers[number]; l == current || l.Closed == 0 && sh.mayHave(queue) || sh.Revived() {
				list = append(list, number)
			}
		}
	}
	return list
}

// Homes is where new jobs of a queue go, each once: one shard, or as many as the policy spreads
// the queue over. The caller must not change it.
func (n *Namespace) Homes(queue string) []int {
	p := n.placed()
	return n.within(p, p.layouts.Current(), queue)
}

// FirstHome is the first home that a queue ever had.
func (n *Namespace) FirstHome(queue string) int {
	p := n.placed()
	return n.within(p, p.layouts.All[0], queue)[0]
}

// within are the homes of a queue in a layout.
func (n *Namespace) within(p *placement, l *space.Layout, queue string) []int {
	size, first := len(l.Shards), l.Shards[0].Number
	at, k := backend.ShardOf(queue, size), min(n.Policy.Spread[queue], size)
	if k < 2 {
		return p.alone[first+at]
	}
	homes := make([]int, k)
	for i := range homes {
		homes[i] = first + (at+i)%size
	}
	return homes
}

// HomeOf chooses the shard of a publish. Repeats have to meet what the first one stored, so a
// key or a caller's id chooses; others have the turn that the caller gives.
func (n *Namespace) HomeOf(p *Publish, turn uint64) int {
	homes := n.Homes(p.Queue)
	if len(homes) == 1 {
		return homes[0]
	}
	if name := cmp.Or(p.CallerID, p.UniqueKey, p.Key); name != "" {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name))
		return homes[jump(h.Sum64(), len(homes))]
	}
	return homes[turn%uint64(len(homes))]
}

// jump is one of n buckets for a hash: the jump consistent hash of Lamping and Veach. One
// bucket more takes 1/(n+1) of the hashes, and all others stay where they are: a higher
// spread appends shards.
func jump(hash uint64, n int) int {
	bucket, next := 0, 0.0
	for next < float64(n) {
		bucket = int(next)
		hash = hash*2862933555777941757 + 1
		next = float64(bucket+1) * (1 << 31) / float64(hash>>33+1)
	}
	return bucket
}

// part is what a shard may have of a bound over all shards: a script sees its shard only.
func (n *Namespace) part(all int64, sh *shard) int64 {
	shards := int64(n.placed().layouts.Size(sh.Layout))
	return (all + shards - 1) / shards
}

// mayHave reports whether a shard of an older layout may have jobs of a queue. What it has none
// of once it is fenced, it never has again.
func (sh *shard) mayHave(queue string) bool {
	left := sh.left.Load()
	return left == nil || (*left)[queue]
}

// maxLeft is how many queues a shard of an older layout may have jobs of so that a process
// remembers which.
const maxLeft = 10_000

// find is the shard of a number that an id names; nil: there is none. Where the process knows
// none, it asks the store: it may know an old record only.
func (s *Store) find(ctx context.Context, ns *Namespace, number int) (*shard, error) {
	if err := s.space.Resolve(ctx, ns.Home); err != nil {
		return nil, backend.Wrap(backend.ErrUnavailable, err)
	}
	if sh := ns.shard(number); sh != nil {
		return sh, nil
	}
	if time.Now().UnixNano() < ns.home.silent.Load() {
		return nil, backend.ErrUnreachable
	}
	asking, cancel := context.WithTimeout(ctx, learnWait)
	defer cancel()
	if err := s.space.Learn(asking, ns.Home, nil); err != nil {
		ns.home.silent.Store(time.Now().Add(learnRest).UnixNano())
		return nil, backend.Wrap(backend.ErrUnavailable, err)
	}
	return ns.shard(number), nil
}

// A flush of all namespaces waits while a process asks for shards that ids of one name, which
// anybody can make up.
const (
	learnWait = 200 * time.Millisecond
	learnRest = time.Second // after a failure
)

// findJob is find for what is about one job; ErrNoJob where there is no such shard.
func (s *Store) findJob(ctx context.Context, ns *Namespace, queue string, ref Ref) (*shard, error) {
	if err := badJob(ns, queue, ref); err != nil {
		return nil, err
	}
	sh, err := s.find(ctx, ns, ref.Shard)
	if err == nil && sh == nil {
		err = ErrNoJob
	}
	return sh, err
}

// findJobs finds the shards of acks and settles. It asks once for all ids of a shard that there is not.
func (s *Store) findJobs(ctx context.Context, b *Batch) {
	var asked []*home
	for _, a := range b.Acks {
		if a.at = nil; a.Err == nil {
			a.at, a.Err = s.findOnce(ctx, a.Namespace, a.Ref.Shard, &asked)
		}
	}
	for _, t := range b.Settles {
		if t.at = nil; t.Err == nil {
			t.at, t.Err = s.findOnce(ctx, t.Namespace, t.Ref.Shard, &asked)
		}
	}
}

// findOnce is find, but for homes that were asked in vain before.
func (s *Store) findOnce(ctx context.Context, ns *Namespace, number int, asked *[]*home) (*shard, error) {
	if slices.Contains(*asked, ns.home) {
		return ns.shard(number), nil
	}
	sh, err := s.find(ctx, ns, number)
	if sh == nil && err == nil {
		*asked = append(*asked, ns.home)
	}
	return sh, err
}

// fence makes sure that no shard of an older layout takes jobs any more, as far as it can be
// reached. It returns where the queues are then.
func (s *Store) fence(ctx context.Context, ns *Namespace) (at *placement) {
	for range maxMoves {
		if at = ns.placed(); !at.layouts.NeedsFence() {
			break
		}
		if _, err := s.space.Fence(ctx, ns.Home, false); err != nil {
			break
		}
	}
	return at
}

// place finds where each publish is stored, and answers those that a former home of their queue
// knows.
func (s *Store) place(ctx context.Context, list []*Publish) {
	var calls []*backend.Call
	var asks []*Publish
	var asked []*shard
	now, _ := s.backend.Now()
	for _, p := range list {
		if p.at = nil; p.Err != nil {
			continue
		}
		ns := p.Namespace
		at := s.fence(ctx, ns)
		current := at.layouts.Current()
		if !slices.Contains(ns.within(at, current, p.Queue), p.Shard) {
			p.Shard = ns.HomeOf(p, uint64(p.Shard)) // #nosec G115 -- not negative
		}
		if p.Shard >= len(at.numbers) || at.numbers[p.Shard] == nil { // of a layout that is newer than at
			p.Err = errMoving
			continue
		}
		p.at = at.numbers[p.Shard]
		for _, l := range at.layouts.Replaced(now, MaxKeyTTL.Milliseconds()) {
			for _, number := range ns.within(at, l, p.Queue) {
				sh := at.numbers[number]
				if l.Closed == 0 && !sh.Fenced() {
					p.Err, p.at = backend.ErrUnreachable, nil
				}
				if p.Key != "" || p.Unique > 0 || p.CallerID != "" && sh.mayHave(p.Queue) {
					calls = append(calls, backend.NewCall(luajob.Stored, sh.Breaker, []string{
						string(sh.appendResult(nil, p.Queue, p.Key)), sh.ids(p.Queue), sh.jobs(p.Queue),
						sh.dead(p.Queue), sh.lease, string(sh.appendResult(nil, p.Queue, p.uniqueKey()))}, p.Queue, p.CallerID))
					asks, asked = append(asks, p), append(asked, sh)
				}
			}
		}
	}
	if len(calls) == 0 {
		return
	}
	// Durably, because a repeat must not be acknowledged before replicas have what it repeats.
	s.backend.RunDurably(ctx, s.backend.In, calls)
	for i, c := range calls {
		p := asks[i]
		status, first, count := c.Rest.Int(), c.Rest.Int(), c.Rest.Int()
		switch {
		case p.Repeated || p.Exists:
		case c.Err != nil:
			p.Err, p.at = c.Err, nil
		case c.Rest.Broken:
			p.Err, p.at = c.Misread(), nil
		case status > 0:
			p.Err, p.at, p.Shard = c.Unconfirmed, nil, asked[i].Number
			p.First, p.Count, p.Repeated, p.Exists = first, int(count), status == 2, status == 3
		}
	}
}

// moved closes when this process learns that a namespace has other shards.
func (s *Store) moved() <-chan struct{} { return *s.moves.Load() }

func (s *Store) tellMoved() {
	next := make(chan struct{})
	if before := s.moves.Swap(&next); before != nil {
		close(*before)
	}
	s.alarm.ring() // the promoter sleeps until what it knows of is due, in the shards that it knew
}

// movedOff takes up the record of a call that a fenced shard rejected; its publishes are to be
// sent again.
func (s *Store) movedOff(ctx context.Context, pack backend.Pack[item]) (again []*Publish, moved bool) {
	at := pack.Rest
	if pack.Err != nil || pack.More != 2 || at.Int() != -1 {
		return nil, false
	}
	record := at.Bulk()
	err := errMoving
	if at.Broken {
		err = pack.Misread()
	} else if wrong := s.space.Learn(ctx, pack.Items[0].(*group).publishes[0].Namespace.Home, record); wrong != nil {
		err = backend.Wrap(backend.ErrUnavailable, wrong)
	}
	for _, it := range pack.Items {
		for _, p := range it.(*group).publishes {
			if p.Err = err; err == errMoving {
				again = append(again, p)
			}
		}
	}
	return again, true
}

// behindFor is how long a claim in a newer layout waits for the ready jobs of an older one, in ms.
const behindFor = 50

// olderFirst leaves out the claims of queues that have a ready job in an older layout. That is
// only believed of a shard that takes no jobs any more: into any other one a job may have come
// since.
func (s *Store) olderFirst(ctx context.Context, claims []*Claim) []*Claim {
	type ask struct {
		claim  *Claim
		sh     *shard
		ready  *redis.IntCmd
		paused *redis.BoolCmd
	}
	var asks []ask
	var pipe redis.Pipeliner
	for _, c := range claims {
		ns := c.Namespace
		if c.Older = false; len(ns.Layouts().All) == 1 {
			continue
		}
		if pipe == nil {
			pipe = s.backend.Out.Pipeline()
		}
		at := s.fence(ctx, ns)
		for _, l := range at.layouts.Older(c.at.Layout) {
			for _, queue := range c.Queues {
				for _, number := range ns.within(at, l, queue) {
					switch sh := at.numbers[number]; {
					case queue == outbox || !sh.mayHave(queue) || c.Err != nil:
					case !sh.Fenced() || !sh.Breaker.Allow():
						c.Err = backend.ErrUnreachable
					default:
						asks = append(asks, ask{c, sh, pipe.LLen(ctx, sh.ready(queue)), pipe.HExists(ctx, sh.paused, queue)})
					}
				}
			}
		}
	}
	if len(asks) > 0 {
		_, _ = pipe.Exec(ctx) // each command has its own error
	}
	for _, a := range asks {
		err := backend.Classify(a.ready.Err())
		a.sh.Breaker.Done(err)
		switch {
		case errors.Is(err, backend.ErrUnknown):
			err = backend.Wrap(backend.ErrUnavailable, err) // nothing was claimed
			fallthrough
		case err != nil:
			a.claim.Err = cmp.Or(a.claim.Err, err)
		case a.ready.Val() > 0 && !a.paused.Val(): // a paused one is so in each layout
			a.claim.Older = true
		}
	}
	return slices.DeleteFunc(claims, func(c *Claim) bool {
		if c.Older && c.Err == nil && c.ReportLeft {
			c.Left, c.Held = make([]int, len(c.Queues)), make([]int64, len(c.Queues))
			for i := range c.Queues {
				c.Left[i], c.Held[i] = -1, behindFor
			}
		}
		return c.Older || c.Err != nil
	})
}
