package job

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// Bounds of one script call, which together keep it below about 2 ms of Redis (measured: 1 to
// 2.5 ms with 1,000 jobs of 200 B, go test -run xxx -bench Calls). A request larger than that is
// a call of its own.
const (
	maxCallQueues = 64
	maxCallJobs   = 1000    // messages, acks, claims; claim.lua hands out as many
	maxCallItems  = 256     // groups, settles, requests
	maxCallBytes  = 1 << 20 // of records
	maxAnswer     = 4 << 20 // bytes of records that a claim reads
)

// kind is the script of a call.
type kind uint8

const (
	acks kind = iota
	settles
	publishes
	claims
)

// An item is what one part of a call asks for: *Ack, *Settle, *group or *request.
type item interface{}

// planned is a call, and how full it is.
type planned struct {
	kind   kind
	sh     *shard
	call   *backend.Call
	items  []item
	queues map[string]bool
	last   string // queue that was added last
	jobs   int
	bytes  int
	groups map[groupKey]*group // of plain publishes, to be joined
}

// run is the memory of Run, which the next one reuses.
type run struct {
	calls    []planned
	packs    []backend.Pack[item]
	groups   []*group
	requests []*request
	usedG    int
	usedR    int
	args     arguments
	numbers  numbers
	now      int64
	plainly  bool // publishes are not joined
	oneQueue [1]string
	left     []bool
	limits   []limit
	later    []*Ack // that the round had no room for
	keeps    []*Rule
	token    string
}

// Run runs all requests in one round trip, with one script call for each shard and verb:
// acks, settles, publishes, claims, in this order. What is too much for one call of about 2
// ms goes into several. Results are in the requests. Each succeeds or fails on its own. Where
// publishes wait for replicas, they run beside the others.
//
// Publishes of one queue and delay that have neither key nor caller's id are stored by one
// command, and so are claims of the same queues and TTR served: in the order given.
func (s *Store) Run(ctx context.Context, l *Lane, b *Batch) {
	s.rejectBad(b)
	s.rejectUnchecked(b)
	b.place()
	claims := pending(b.Claims)
	l.run.begin()
	if err := s.readClock(ctx, &l.run, b.Publishes); err != nil {
		for _, p := range b.Publishes {
			if p.Err == nil {
				p.Err, p.at = err, nil
			}
		}
	}
	l.run.planAcks(b.Acks)
	l.run.planSettles(b.Settles)
	l.run.planPublishes(b.Publishes)
	for first := true; first || len(claims) > 0 || len(l.run.calls) > 0; first = false {
		later := l.run.planClaims(s.revertFirst(ctx, l, claims))
		if full := s.runPlanned(ctx, l); len(full) > 0 {
			// Together they exceed max_jobs. By itself each may fit.
			l.run.begin()
			l.run.plainly = true
			l.run.planPublishes(full)
			s.runPlanned(ctx, l)
		}
		l.run.begin()
		claims = later
		l.run.planAcks(l.run.later)
		l.run.later = nil
	}
}

// pending are the claims that have no error yet.
func pending(all []*Claim) []*Claim {
	list := make([]*Claim, 0, len(all))
	for _, c := range all {
		c.Jobs = nil
		c.Left = nil
		c.More = false
		if c.Err == nil {
			list = append(list, c)
		}
	}
	return list
}

// rejectBad sets the error of each request, and clears what is left of an earlier result.
func (s *Store) rejectBad(b *Batch) {
	for _, a := range b.Acks {
		a.Acked = false
		a.Deleted = false
		a.Err = badJob(a.Namespace, a.Queue, a.Ref)
		if len(a.Result) > MaxResult {
			a.Err = ErrBadArgument
		}
	}
	for _, t := range b.Settles {
		t.State, t.Err = Gone, badJob(t.Namespace, t.Queue, t.Ref)
		if t.Err == nil && (t.Verb < Nack || t.Verb > Requeue || t.After < 0 || t.After > MaxTTR ||
			t.Attempt < 0 || t.Deadline < 0) {
			t.Err = ErrBadArgument
		}
	}
	for _, p := range b.Publishes {
		p.First = 0
		p.Count = 0
		p.Repeated = false
		p.Exists = false
		p.Err = p.bad()
	}
	for _, c := range b.Claims {
		c.Err = c.bad()
	}
}

func badJob(ns *Namespace, queue string, r Ref) error {
	if ns == nil || r.Shard < 0 || r.Shard > maxNumber || r.Seq < 1 || !partition.ValidAnyQueue(queue) ||
		r.CallerID != "" && !ValidCallerID(r.CallerID) {
		return ErrBadArgument
	}
	return nil
}

// rejectUnchecked rejects publishes and claims of namespaces that did not pass a Check. Acks and
// settles are about jobs that were stored and claimed: they need none.
func (s *Store) rejectUnchecked(b *Batch) {
	for _, p := range b.Publishes {
		if p.Err == nil {
			p.Err = s.mayRun(p.Namespace)
		}
	}
	for _, c := range b.Claims {
		if c.Err == nil {
			c.Err = s.mayRun(c.Namespace)
		}
	}
}

// mayRun is nil where a check of the namespace passed: at the start, when it was made at run time, or
// later by the promoter.
func (s *core) mayRun(ns *Namespace) error {
	if ns.Usable() {
		return nil
	}
	return s.space.Unusable(ns.Home)
}

// readClock makes the store's time known where a publish needs it for an expiry.
func (s *Store) readClock(ctx context.Context, r *run, publishes []*Publish) (err error) {
	for _, p := range publishes {
		if p.Err == nil && p.ttl() > 0 {
			if r.now, err = s.backend.KnownTime(ctx); err != nil {
				err = backend.Wrap(backend.ErrUnavailable, err) // nothing was published
			}
			return err
		}
	}
	return nil
}

// revertFirst takes back the unknown claims of the shards that claims ask, and returns the
// claims that can be sent.
func (s *Store) revertFirst(ctx context.Context, l *Lane, claims []*Claim) []*Claim {
	if len(l.unknown) == 0 {
		return claims
	}
	var shards []*shard
	for _, c := range claims {
		shards = append(shards, c.at)
	}
	err := s.revert(ctx, l, shards)
	if err == nil {
		return claims
	}
	ready := claims[:0]
	for _, c := range claims {
		if _, still := l.unknown[c.at]; still {
			c.Err = backend.Wrap(backend.ErrUnavailable, errors.Join(errRevertFirst, err))
			continue
		}
		ready = append(ready, c)
	}
	return ready
}

var errRevertFirst = errors.New("an earlier claim of the lane has an unknown outcome, and could not be taken back")

// begin makes room for the next round, and lets go of what the last one was about.
func (r *run) begin() {
	for _, g := range r.groups[:r.usedG] {
		clear(g.publishes)
		*g = group{publishes: g.publishes[:0]}
	}
	for _, q := range r.requests[:r.usedR] {
		clear(q.claims)
		*q = request{claims: q.claims[:0]}
	}
	for i := range r.calls {
		c := &r.calls[i]
		clear(c.items)
		clear(c.call.Args)
		clear(c.queues)
		clear(c.groups)
		c.items = c.items[:0]
		c.sh = nil
		c.last = ""
		c.jobs = 0
		c.bytes = 0
	}
	clear(r.packs)
	r.calls = r.calls[:0]
	r.packs = r.packs[:0]
	r.usedG = 0
	r.usedR = 0
	r.plainly = false
	r.args.reset()
}

// room returns a call of a shard with room for one item more, of a queue, with so many jobs and
// bytes.
func (r *run) room(k kind, sh *shard, queues []string, jobs, bytes int) *planned {
	for i := len(r.calls) - 1; i >= 0; i-- {
		c := &r.calls[i]
		if c.kind != k || c.sh != sh {
			continue
		}
		if c.fits(queues, jobs, bytes) {
			return c
		}
		break
	}
	return r.next(k, sh)
}

func (r *run) next(k kind, sh *shard) *planned {
	n := len(r.calls)
	r.calls = slices.Grow(r.calls, 1)[:n+1] // what earlier runs made stays
	c := &r.calls[n]
	if c.call == nil {
		*c = planned{call: &backend.Call{}, queues: map[string]bool{}, groups: map[groupKey]*group{}}
	}
	c.kind, c.sh = k, sh
	return c
}

// fits reports whether an item has room, and counts its queues. An empty call takes every item.
func (c *planned) fits(queues []string, jobs, bytes int) bool {
	if len(c.items) == 0 {
		return true
	}
	added := 0
	for _, q := range queues {
		if q != c.last && !c.queues[q] {
			added++
		}
	}
	return len(c.items) < maxCallItems && len(c.queues)+added <= maxCallQueues &&
		c.jobs+jobs <= maxCallJobs && c.bytes+bytes <= maxCallBytes
}

func (c *planned) add(it item, queues []string, jobs, bytes int) {
	c.items = append(c.items, it)
	c.count(queues, jobs, bytes)
}

func (c *planned) count(queues []string, jobs, bytes int) {
	c.jobs += jobs
	c.bytes += bytes
	for _, q := range queues {
		if q != c.last {
			c.queues[q] = true
			c.last = q
		}
	}
}

// runPlanned runs the planned calls and reads their answers. It returns the publishes that
// were rejected because of others.
func (s *Store) runPlanned(ctx context.Context, l *Lane) (full []*Publish) {
	r := &l.run
	if len(r.calls) == 0 {
		return nil
	}
	durable := 0
	for i := range r.calls {
		c := &r.calls[i]
		r.packs = append(r.packs, backend.Pack[item]{Call: c.call, Items: c.items})
		if c.kind == publishes {
			durable++
		}
	}
	round := s.space.Round() // before anything is sent
	packs := backend.RunPacks(ctx, r.packs, func(c *backend.Call, items []item) { s.fill(l, c, items) },
		func(calls []*backend.Call) { s.send(ctx, calls, durable) }, repeats)
	for _, pack := range packs {
		switch first := pack.Items[0].(type) {
		case *Ack:
			r.later = append(r.later, s.acked(pack)...)
		case *Settle:
			s.settled(pack)
		case *group:
			full = append(full, s.published(pack, first.sh, round)...)
		case *request:
			s.claimed(l, pack)
		}
	}
	return full
}

// repeats: claims do not wait while a slot moves. Who claims asks again, and a lane remembers one
// claim of a shard, the last.
func repeats(it item, _ []item) bool {
	_, claim := it.(*request)
	return !claim
}

// send runs calls. Publishes wait for their replicas in a pipeline of their own, because WAIT
// would hold up the answers of the others.
func (s *core) send(ctx context.Context, calls []*backend.Call, durable int) {
	switch {
	case len(calls) == 0:
	case durable == 0:
		s.backend.Run(ctx, s.backend.Out, calls)
	case s.backend.Replicas() == 0:
		client := s.backend.Out
		if durable == len(calls) {
			client = s.backend.In
		}
		s.backend.Run(ctx, client, calls)
	default:
		var stored, others []*backend.Call
		for _, c := range calls {
			if c.Tag == tagPublish {
				stored = append(stored, c)
			} else {
				others = append(others, c)
			}
		}
		var running sync.WaitGroup
		running.Go(func() { s.backend.RunDurably(ctx, s.backend.In, stored) })
		if len(others) > 0 {
			s.backend.Run(ctx, s.backend.Out, others)
		}
		running.Wait()
	}
}

// tagPublish marks the calls of publish.
const tagPublish = 1

func (s *Store) fill(l *Lane, c *backend.Call, items []item) {
	c.Tag = 0
	l.run.numbers.reset()
	switch items[0].(type) {
	case *Ack:
		l.run.fillAcks(c, items)
	case *Settle:
		l.run.fillSettles(s, c, items)
	case *group:
		c.Tag = tagPublish
		l.run.fillGroups(s, c, items)
	case *request:
		l.run.fillRequests(s, l, c, items)
	}
}

func ms(d time.Duration) int64 { return d.Milliseconds() }

// leaseMS is how long a lease or a back-off is, as the scripts take it.
func leaseMS(d time.Duration) int64 { return min(ms(d), 1e12) }
