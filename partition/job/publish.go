package job

import (
	"errors"
	"fmt"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// keyTTL is how long the result of an idempotent publish is kept, where the caller does not say
// it: longer than clients retry.
const keyTTL = 2 * 60 * 1000 // ms

// bad is ErrBadArgument where the publish is outside its bounds.
func (p *Publish) bad() error {
	ns := p.Namespace
	switch {
	case ns == nil, !partition.ValidQueue(p.Queue), p.Shard < 0,
		p.Delay < 0, p.Delay > MaxDelay, p.TTL < 0, p.TTL > MaxTTL, p.Tries < 1, p.Tries > MaxTries,
		p.CallerID != "" && (!ValidCallerID(p.CallerID) || len(p.Messages) > 1),
		p.KeyTTL < 0, p.KeyTTL > MaxKeyTTL, p.Unique < 0, p.Unique > MaxKeyTTL, len(p.UniqueKey) > MaxUniqueKey,
		p.Unique > 0 && (len(p.Messages) > 1 || p.UniqueKey == "" && p.CallerID == ""), p.OnEnd != "" && !partition.ValidQueue(p.OnEnd),
		p.Prepare != nil && p.Prepare.bad(), len(p.Messages) < 1 && !p.asks(), len(p.Messages) > MaxMessages:
		return ErrBadArgument
	}
	return nil
}

// asks reports whether the publish has keys or an id but nothing to store: then it finds what an earlier one stored
// under them, or is ErrNoRepeat.
func (p *Publish) asks() bool {
	return len(p.Messages) == 0 && (p.Key != "" || p.Unique > 0 || p.CallerID != "")
}

// uniqueKey is the key of a publish that is Unique, which no idempotency key is.
func (p *Publish) uniqueKey() string {
	switch {
	case p.Unique == 0:
		return ""
	case p.UniqueKey == "":
		return "\x00id " + p.CallerID
	}
	return "\x00unique " + p.UniqueKey
}

// ttl is how long the jobs live, in ms; 0: for ever. A lifetime below a millisecond is one.
func (p *Publish) ttl() int64 {
	ttl := ms(p.TTL)
	if p.TTL > 0 {
		ttl = max(1, ttl)
	}
	if IsReplyQueue(p.Queue) {
		reply := ms(p.Namespace.Policy.ReplyTTL)
		if ttl == 0 || ttl > reply {
			ttl = reply
		}
	}
	return ttl
}

// A group is publishes that are stored whole or not at all, together.
type group struct {
	sh        *shard
	queue     string
	delay     int64 // ms
	publishes []*Publish
	messages  int
}

// groupKey is what plain publishes have in common that are joined.
type groupKey struct {
	queue string
	delay int64
}

func (r *run) planPublishes(list []*Publish) {
	for _, p := range list {
		if p.at == nil {
			continue // it is answered
		}
		sh := p.at
		n, bytes := len(p.Messages), 0
		for _, m := range p.Messages {
			bytes += recordSize(p.CallerID, m)
		}
		r.oneQueue[0] = p.Queue
		c := r.room(publishes, sh, r.oneQueue[:], n, bytes)
		key := groupKey{p.Queue, p.waits()}
		plain := p.Key == "" && p.CallerID == "" && p.Unique == 0 && p.OnEnd == "" && p.Prepare == nil && !r.plainly
		if g := c.groups[key]; plain && g != nil {
			g.publishes = append(g.publishes, p)
			g.messages += n
			c.count(r.oneQueue[:], n, bytes)
			continue
		}
		g := r.newGroup()
		*g = group{
			sh:        sh,
			queue:     p.Queue,
			delay:     key.delay,
			publishes: append(g.publishes[:0], p),
			messages:  n,
		}
		c.add(g, r.oneQueue[:], n, bytes)
		if plain {
			c.groups[key] = g
		}
	}
}

func (r *run) newGroup() *group {
	if r.usedG == len(r.groups) {
		r.groups = append(r.groups, &group{})
	}
	r.usedG++
	return r.groups[r.usedG-1]
}

func (r *run) fillGroups(s *Store, c *backend.Call, items []item) {
	first := items[0].(*group)
	sh, ns := first.sh, first.publishes[0].Namespace
	keyed := 0
	for _, it := range items {
		g := it.(*group)
		r.numbers.number(g.queue)
		if g.publishes[0].Key != "" {
			keyed++
		}
		if g.publishes[0].Unique > 0 {
			keyed++
		}
	}
	n := len(r.numbers.names)
	c.Begin(luajob.Publish, sh.Breaker, 6+4*n+keyed)
	c.Spare = &sh.ends
	c.Args = append(c.Args, sh.args.ledger, sh.args.delay, sh.args.queues, sh.args.lease,
		sh.args.attempts,
		sh.args.tombstones)
	for _, queue := range r.numbers.names {
		r.args.allKeys(c, sh, queue)
	}
	for _, it := range items {
		p := it.(*group).publishes[0]
		if p.Key != "" {
			r.args.resultKey(c, sh, p.Queue, p.Key)
		}
		if p.Unique > 0 {
			r.args.resultKey(c, sh, p.Queue, p.uniqueKey())
		}
	}
	// Who ends jobs must not wait for room that only their ends make: what tells them may take as much again. Follow-ups
	// have none themselves, so whatever they fill can be acked and purged.
	room := int64(1)
	if first.publishes[0].follows {
		room = 2
	}
	r.args.int(c, room*ns.part(ns.Policy.MaxJobs))
	r.args.int(c, room*ns.part(ns.Policy.MaxQueues))
	r.args.int(c, ns.part(ns.Policy.MaxKeys))
	c.Args = append(c.Args, sh.args.channel, s.wake)
	r.args.int(c, int64(n))
	for _, queue := range r.numbers.names {
		r.args.join(c, queue)
	}
	keyed = 0
	for _, it := range items {
		g := it.(*group)
		p := g.publishes[0]
		r.args.int(c, int64(r.numbers.number(g.queue)))
		r.args.int(c, g.delay)
		if p.Key == "" {
			r.args.int(c, 0)
			r.args.int(c, 0)
		} else {
			keyed++
			r.args.int(c, int64(6+4*n+keyed))
			keep := ms(p.KeyTTL)
			if keep == 0 {
				keep = keyTTL
			}
			r.args.int(c, keep)
		}
		watched := p.watched()
		if p.Unique > 0 {
			keyed++
			watched = fmt.Sprintf("u%d %d\n", 6+4*n+keyed, max(1, ms(p.Unique))) + watched
		}
		if watched == "" {
			r.args.join(c, p.CallerID)
		} else {
			r.args.join(c, p.CallerID, "\n", watched)
		}
		r.args.int(c, int64(g.messages))
		for _, p := range g.publishes {
			expires := int64(0)
			if ttl := p.ttl(); ttl > 0 {
				expires = min(r.now+ttl, maxExpiry)
			}
			for _, m := range p.Messages {
				r.args.record(c, expires, p, m)
			}
		}
	}
}

// errForeign is the answer about a queue where a key has another type.
var errForeign = backend.Wrap(backend.ErrBroken,
	errors.New("a key of the queue holds a value of another type: something else wrote it"))

// published reads the answer of a call. round is the rollback round before it was sent. It
// returns the publishes that were rejected together with others.
func (s *Store) published(pack backend.Pack[item], sh *shard, round uint64) (full []*Publish) {
	for _, it := range pack.Items {
		g := it.(*group)
		status := int64(-2)
		first := int64(0)
		count := int64(0)
		err := pack.Err
		if err == nil {
			status = pack.Rest.Int()
			first = pack.Rest.Int()
			count = pack.Rest.Int()
			if pack.Rest.Broken {
				err = pack.Misread()
			}
		}
		if err == nil {
			err = publishErrors[status]
			if _, known := publishErrors[status]; !known {
				err = pack.Misread()
			}
		}
		switch {
		case errors.Is(err, ErrTooManyJobs) && len(g.publishes) > 1:
			full = append(full, g.publishes...)
			continue
		case err == nil:
			if status == 1 {
				sh.Stored(round, int(count))
				if g.delay > 0 {
					s.comesDue(sh, pack.Now+g.delay)
				}
				if count != int64(g.messages) {
					err = pack.Misread()
				}
			}
			if err == nil {
				err = pack.Unconfirmed
			}
		case errors.Is(err, errForeign):
			s.backend.CountError(err)
		}
		for _, p := range g.publishes {
			if p.Err = err; err != nil && !errors.Is(err, backend.ErrUnconfirmed) {
				continue
			}
			p.First = first
			p.Count = len(p.Messages)
			p.Repeated = status == 2
			p.Exists = status == 3
			if p.Repeated || p.Exists {
				p.Count = int(count)
			}
			first += int64(len(p.Messages))
			if status == 1 {
				s.notePublished(p.Namespace, p.Queue, p.By, Ref{p.Shard, p.First, p.CallerID}, p.Count)
			}
		}
	}
	return full
}

// publishErrors are the errors by the status of a group.
var publishErrors = map[int64]error{
	1:  nil,
	2:  nil,
	3:  nil,
	0:  ErrTooManyQueues,
	4:  ErrTooManyJobs,
	-1: errForeign,
	5:  errReadTooMuch,
	6:  ErrTooManyKeys,
	7:  ErrClosed,
	9:  ErrNoRepeat,
}

var errReadTooMuch = backend.Wrap(backend.ErrUnavailable,
	errors.New("the ids of many large jobs were published again at once"))
