package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/lua"
	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition/backend"
)

func (r *run) planAcks(list []*Ack) {
	for _, a := range list {
		if a.at != nil {
			r.oneQueue[0] = a.Queue
			r.room(acks, a.at, r.oneQueue[:], 1, 0).add(a,
				r.oneQueue[:], 1, 0)
		}
	}
}

func (r *run) planSettles(list []*Settle) {
	for _, t := range list {
		if t.at != nil {
			r.oneQueue[0] = t.Queue
			size := min(len(t.Error), MaxError)
			if t.Progress != nil {
				size += min(len(t.Progress.Note), MaxNote)
			}
			r.room(settles, t.at, r.oneQueue[:], 1, size).add(t,
				r.oneQueue[:], 1, size)
		}
	}
}

// beginSettling begins a call of ack or settle: the keys of the shard and of all queues. The caller adds more.
func (r *run) beginSettling(c *backend.Call, script *lua.Script, sh *shard, more int) {
	n := len(r.numbers.names)
	c.Begin(script, sh.Breaker, 6+4*n+more)
	c.Spare = &sh.ends
	c.Args = append(c.Args, sh.args.ledger, sh.args.lease, sh.args.attempts,
		sh.args.queues, sh.args.delay,
		sh.args.tombstones)
	for _, queue := range r.numbers.names {
		r.args.allKeys(c, sh, queue)
	}
}

func (r *run) fillAcks(c *backend.Call, items []item) {
	// Jobs of a queue are one group.
	slices.SortStableFunc(items, func(a, b item) int {
		return strings.Compare(a.(*Ack).Queue,
			b.(*Ack).Queue)
	})
	for _, it := range items {
		r.numbers.number(it.(*Ack).Queue)
	}
	first := items[0].(*Ack)
	ns, sh, more := first.Namespace, first.at, 0
	r.keeps = r.keeps[:0]
	for _, queue := range r.numbers.names {
		rule := ns.keepAcked(queue)
		r.keeps = append(r.keeps, rule)
		if rule.KeepAcked > 0 {
			more += 2
		}
	}
	if more > 0 {
		more++
	}
	r.beginSettling(c, luajob.Ack, sh, more)
	if more > 0 {
		r.args.join(c, sh.kept)
	}
	for i, queue := range r.numbers.names {
		if r.keeps[i].KeepAcked > 0 {
			r.args.join(c, sh.until(queue))
			r.args.join(c, sh.acked(queue))
		}
	}
	r.args.int(c, int64(len(r.numbers.names)))
	for i, queue := range r.numbers.names {
		if rule := r.keeps[i]; rule.KeepAcked > 0 {
			r.args.join(c, fmt.Sprintf("%s %d %d", queue, time.Duration(rule.KeepAcked).Milliseconds(),
				ns.part(ns.Policy.MaxJobs)))
		} else {
			r.args.join(c, queue)
		}
	}
	for from := 0; from < len(items); {
		queue, to := items[from].(*Ack).Queue, from
		for to < len(items) && items[to].(*Ack).Queue == queue {
			to++
		}
		r.args.int(c, int64(r.numbers.number(queue)))
		r.args.int(c, int64(to-from))
		for _, it := range items[from:to] {
			a := it.(*Ack)
			marks := ""
			if a.Delete {
				marks = "!"
			}
			if a.Undone {
				marks = "!!"
			}
			if a.Moved {
				marks = "!!!"
			}
			r.args.reference(c, a.Ref, marks, a.Result)
		}
		from = to
	}
}

// acked reads the answer of a call. It returns those that another call is to keep.
func (s *Store) acked(pack backend.Pack[item]) (later []*Ack) {
	for _, it := range pack.Items {
		a := it.(*Ack)
		if a.Err = pack.Err; a.Err != nil {
			continue
		}
		switch done := pack.Rest.Int(); {
		case pack.Rest.Broken:
			a.Err = pack.Misread()
		case done == -1:
			a.Err = errForeign
		case done == -2:
			later = append(later, a)
		case done == 3:
			a.Err = ErrPrepared
		default:
			a.Acked, a.Deleted = done == 1, done == 2
			event := [...]string{1: "acked", 2: "deleted"}[done]
			if a.Undone && event != "" {
				event = "deleted"
			}
			if a.Moved && event != "" {
				event = "moved"
			}
			if event != "" && a.Namespace.Noted() {
				s.note(a.Namespace, a.Queue, a.Ref,
					TraceEvent{AtMS: pack.Now, Event: event, By: a.By})
			}
			s.ended(a.Namespace, a.Ref.Shard)
		}
	}
	return later
}

// Said is what a worker says with its verb.
func (t *Settle) Said() string {
	switch {
	case t.Verb == Touch && t.Progress != nil:
		return strconv.Itoa(t.Progress.Percent) + " " + keptText(t.Progress.Note, MaxNote)
	case t.Verb == Nack, t.Verb == Bury:
		return keptText(t.Error, MaxError)
	}
	return ""
}

var verbNames = [...]any{Nack: "nack", Bury: "bury", Touch: "touch", Defer: "defer", Requeue: "requeue"}

func (r *run) fillSettles(s *Store, c *backend.Call, items []item) {
	for _, it := range items {
		r.numbers.number(it.(*Settle).Queue)
	}
	first := items[0].(*Settle)
	sh := first.at
	r.beginSettling(c, luajob.Settle, sh, 0)
	c.Args = append(c.Args, sh.args.channel, s.wake)
	r.args.int(c, int64(len(r.numbers.names)))
	for _, queue := range r.numbers.names {
		r.args.join(c, queue)
	}
	for _, queue := range r.numbers.names {
		r.args.int(c, first.Namespace.keeps(queue))
	}
	for _, it := range items {
		t := it.(*Settle)
		r.args.int(c, int64(r.numbers.number(t.Queue)))
		r.args.int(c, t.Ref.Seq)
		r.args.int(c, int64(t.Attempt))
		if said := t.Said(); said != "" {
			r.args.join(c, verbNames[t.Verb].(string), " ", said)
		} else {
			c.Args = append(c.Args, verbNames[t.Verb])
		}
		if t.Verb == Requeue {
			r.args.int(c, t.Deadline)
		} else {
			r.args.int(c, leaseMS(t.After))
		}
	}
}

func (s *Store) settled(pack backend.Pack[item]) {
	for _, it := range pack.Items {
		t := it.(*Settle)
		if t.Err = pack.Err; t.Err != nil {
			continue
		}
		switch state := pack.Rest.Int(); {
		case pack.Rest.Broken:
			t.Err = pack.Misread()
		case state == -1:
			t.Err = errForeign
		case state < 0 || state > int64(Leased):
			t.Err = pack.Misread()
		default:
			t.State = State(state)
			s.noteSettled(t, pack.Now)
			s.ended(t.Namespace, t.Ref.Shard)
			if t.State == Delayed || t.State == Leased {
				s.comesDue(t.at, pack.Now+ms(t.After))
			}
		}
	}
}
