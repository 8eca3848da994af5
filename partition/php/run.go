package php

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	luaphp "github.com/spillway-io/spillway/lua/php"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
)

// Bounds of calls, and what a lane's last claim is kept for.
const (
	maxCount        = 1000
	maxSettled      = 1000
	defaultMaxBytes = 4 << 20  // of a claim, in calls of
	maxClaimBytes   = 64 << 10 // and one payload more
	outTTL          = 10 * time.Minute
	defaultKeyTTL   = 2 * time.Minute
)

// lane is the memory of a job.Lane: the claims with an unknown outcome.
type lane struct {
	name    string // of its key in each queue; no other lane has it
	claims  uint64 // so far
	unknown map[target]string
}

// target is a queue of a namespace.
type target struct{ namespace, queue string }

// NewLane makes a lane.
func (s *Store) NewLane() *job.Lane {
	return &job.Lane{Other: &lane{name: rand.Text(), unknown: map[target]string{}}}
}

func (l *lane) token() string {
	l.claims++
	return l.name + "." + strconv.FormatUint(l.claims, 10)
}

// Run runs requests together, and sets their results: settlements, then publishes, then claims, in
// one round trip. A claim of several queues takes another for each queue that has too few.
func (s *Store) Run(ctx context.Context, l *job.Lane, b *job.Batch) {
	memory := l.Other.(*lane)
	defer func() { l.Unknown = len(memory.unknown) > 0 }()
	var calls []*backend.Call
	settles := s.settlements(b)
	s.findExhausted(ctx, settles)
	settles = slices.DeleteFunc(settles, func(x *settlement) bool { return len(x.lines) == 0 })
	for _, x := range settles {
		calls = append(calls, x.call())
	}
	var publishes []*publish
	for _, p := range b.Publishes {
		if x := s.publish(p); x != nil {
			publishes, calls = append(publishes, x), append(calls, x.call)
		}
	}
	claims := s.claims(b)
	if len(memory.unknown) > 0 {
		_ = s.revert(ctx, memory, claims.targets()) // those that fail stay unknown, and are not asked
	}
	asked := claims.next(memory)
	calls = append(calls, callsOf(asked)...)
	if len(publishes) > 0 || len(settles) > 0 {
		s.backend.RunDurably(ctx, s.backend.Out, calls)
	} else if len(calls) > 0 {
		s.backend.Run(ctx, s.backend.Out, calls)
	}
	for _, p := range publishes {
		p.read()
	}
	s.settle(ctx, s.readSettlements(settles))
	for len(asked) > 0 {
		var counts []*settlement
		for _, x := range asked {
			if x.read(memory); len(x.counts.lines) > 0 {
				counts = append(counts, &x.counts)
			}
		}
		s.settle(ctx, counts)
		for _, x := range asked {
			x.handOut(memory)
		}
		if asked = claims.next(memory); len(asked) > 0 {
			s.backend.Run(ctx, s.backend.Out, callsOf(asked))
		}
	}
}

// publish is one publish of a batch under way.
type publish struct {
	*job.Publish
	call *backend.Call
}

// publish makes the call of a publish; nil: it failed before.
func (s *Store) publish(p *job.Publish) *publish {
	n, err := s.of(p.Namespace, p.Queue)
	if p.Err = err; err != nil {
		return nil
	}
	now, told := s.backend.Now()
	if !told {
		now = time.Now().UnixMilli()
	}
	k := n.keys(p.Queue)
	known, keep := k.prefix+"known:", int64(0)
	if p.Key != "" {
		sum := sha256.Sum256([]byte(p.Key))
		known += hex.EncodeToString(sum[:16])
		keep = cmp.Or(p.KeyTTL.Milliseconds(), defaultKeyTTL.Milliseconds())
	}
	args := []any{max(0, p.Delay.Milliseconds()), flag(n.Flavor.notifies()), keep, n.MaxKeys}
	for i := range p.Messages {
		payload, err := n.Flavor.Payload(p.Messages[i].Payload, now)
		if err != nil {
			var wrong *PayloadError
			if errors.As(err, &wrong) {
				wrong.Index = i
			}
			p.Err = err
			return nil
		}
		args = append(args, payload)
	}
	return &publish{p, backend.NewCall(luaphp.Publish, n.breaker,
		[]string{k.ready, k.delayed, k.notify, k.account, known}, args...)}
}

func (p *publish) read() {
	if p.Err = explained(p.call.Err); p.Err != nil {
		return
	}
	status, count := p.call.Rest.Int(), p.call.Rest.Int()
	switch {
	case p.call.Rest.Broken:
		p.Err = p.call.Misread()
	case status == 6:
		p.Err = job.ErrTooManyKeys
	case status == 9:
		p.Err = job.ErrNoRepeat
	default:
		p.Count, p.Repeated, p.Err = int(count), status == 2, p.call.Unconfirmed
	}
}

// settlement is the settlements of a batch in one queue.
type settlement struct {
	of     *namespace
	queue  string
	lines  []*line
	sent   *backend.Call
	at     int // lines that were answered
	wanted int // lines of the call
}

// line is one of them: an ack, a change, or else what a claim settles itself.
type line struct {
	seq    int64
	verb   string
	number int64
	ack    *job.Ack
	change *job.Settle
	state  int64 // that the script answered
	err    error
}

func (s *Store) settlements(b *job.Batch) (all []*settlement) {
	of := map[target]*settlement{}
	add := func(ns *job.Namespace, queue string, x *line) {
		t := target{ns.Name, queue}
		if of[t] == nil {
			n, err := s.of(ns, queue)
			if err != nil {
				x.fail(err)
				return
			}
			of[t] = &settlement{of: n, queue: queue}
			all = append(all, of[t])
		}
		of[t].lines = append(of[t].lines, x)
	}
	for _, a := range b.Acks {
		a.Acked, a.Deleted, a.Err = false, false, nil
		add(a.Namespace, a.Queue, &line{seq: a.Ref.Seq, verb: "ack", ack: a})
	}
	for _, x := range b.Settles {
		x.State, x.Err = job.Gone, nil
		add(x.Namespace, x.Queue, &line{seq: x.Ref.Seq, verb: verbs[x.Verb], number: max(0,
			x.After.Milliseconds()), change: x})
	}
	return all
}

// verbs are the words of the script.
var verbs = map[job.Verb]string{job.Nack: "nack", job.Bury: "bury", job.Touch: "touch",
	job.Defer: "touch", job.Requeue: "requeue",
	job.Release: "release"}

// call asks for what was not answered yet.
func (x *settlement) call() *backend.Call {
	n := x.of
	args := []any{flag(n.Flavor.onRelease()), flag(n.Flavor.notifies())}
	x.wanted = min(len(x.lines)-x.at, maxSettled)
	for _, l := range x.lines[x.at : x.at+x.wanted] {
		verb := l.verb
		if l.change != nil && (verb == "exhaust" || verb == "bury") {
			verb = strings.TrimSpace(verb + " " + l.change.Said())
		}
		args = append(args, l.seq, verb, l.number)
	}
	x.sent = backend.NewCall(luaphp.Settle, n.breaker, n.keys(x.queue).nine(), args...)
	return x.sent
}

// The states that settle answers.
const (
	settledLater  = 5
	settledAcked  = 4
	settledLeased = 6
)

var settledStates = map[int64]job.State{1: job.Ready, 2: job.Delayed, 3: job.Dead, settledLeased: job.Leased}

// settle asks until all is answered: a call looks at a bounded number of bytes.
func (s *Store) settle(ctx context.Context, all []*settlement) {
	for len(all) > 0 {
		var calls []*backend.Call
		for _, x := range all {
			calls = append(calls, x.call())
		}
		s.backend.RunDurably(ctx, s.backend.Out, calls)
		all = s.readSettlements(all)
	}
}

// readSettlements reads the answers, and gives those with lines that their calls did not look at.
func (s *Store) readSettlements(all []*settlement) (again []*settlement) {
	for _, x := range all {
		if x.read(); x.at < len(x.lines) {
			again = append(again, x)
		}
	}
	return again
}

// exhaustedPage bounds the payloads in memory: so many at once.
const exhaustedPage = 64

// findExhausted finds the nacks after a last try, as PHP's worker would: each of those jobs dies. A lease
// never changes what its payload says of that.
func (s *Store) findExhausted(ctx context.Context, all []*settlement) {
	var nacks []*line
	var calls []*backend.Call
	look := func(n *namespace, tries int64) {
		s.backend.Run(ctx, s.backend.Out, calls)
		for i, c := range calls {
			if nacks[i].err = c.Err; c.Err != nil || c.Rest.Int() == 0 || string(c.Rest.Bulk()) != "leased" {
				continue
			}
			c.Rest.Int()
			c.Rest.Bulk()
			if readDeliveries(c.Rest.Bulk()).last(n.Flavor, tries, c.Now) {
				nacks[i].verb = "exhaust"
			}
		}
		nacks, calls = nil, nil
	}
	for _, x := range all {
		for _, l := range x.lines {
			if l.verb != verbs[job.Nack] {
				continue
			}
			nacks, calls = append(nacks, l), append(calls, x.of.getCall(x.queue, l.seq))
			if len(calls) == exhaustedPage {
				look(x.of, x.of.tries(x.queue))
			}
		}
		if len(calls) > 0 {
			look(x.of, x.of.tries(x.queue))
		}
		x.lines = slices.DeleteFunc(x.lines, func(l *line) bool {
			if l.err != nil {
				l.fail(explained(l.err))
			}
			return l.err != nil
		})
	}
}

func (x *settlement) read() {
	lines := x.lines[x.at:]
	err := explained(x.sent.Err)
	if err == nil && x.sent.More != x.wanted {
		err = x.sent.Misread()
	}
	if err != nil {
		for _, l := range lines {
			l.fail(err)
		}
		x.at = len(x.lines)
		return
	}
	for _, l := range lines[:x.wanted] {
		state := x.sent.Rest.Int()
		if state == settledLater {
			return
		}
		x.at++
		l.state = state
		switch {
		case l.ack != nil:
			l.ack.Acked, l.ack.Err = state == settledAcked, x.sent.Unconfirmed
		case l.change != nil:
			l.change.State, l.change.Err = settledStates[state], x.sent.Unconfirmed
		}
	}
}

func (l *line) fail(err error) {
	l.err = err
	switch {
	case l.ack != nil:
		l.ack.Err = err
	case l.change != nil:
		l.change.Err = err
	}
}

// Revert takes back what the lane's claims with an unknown outcome handed out, uncounted.
func (s *Store) Revert(ctx context.Context, l *job.Lane) error {
	memory := l.Other.(*lane)
	var all []target
	for t := range memory.unknown {
		all = append(all, t)
	}
	return s.revert(ctx, memory, all)
}

// revert takes back the unknown claims of some queues. Those that fail stay unknown.
func (s *Store) revert(ctx context.Context, l *lane, targets []target) error {
	var calls []*backend.Call
	var reverted []target
	for _, t := range targets {
		token, unknown := l.unknown[t]
		n := s.named(t.namespace)
		switch {
		case !unknown:
			continue
		case n == nil: // its leases lapse
			delete(l.unknown, t)
			continue
		}
		k := n.keys(t.queue)
		calls = append(calls, backend.NewCall(luaphp.Revert, n.breaker,
			[]string{k.ready, k.reserved, k.notify, k.account, k.leases, k.held,
				k.prefix + "out:" + l.name},
			token, flag(n.Flavor.notifies())))
		reverted = append(reverted, t)
	}
	if len(calls) == 0 {
		return nil
	}
	s.backend.Run(ctx, s.backend.Out, calls)
	var errs []error
	for i, c := range calls {
		if c.Err == nil || errors.Is(c.Err, partition.ErrBroken) { // else it would fail for ever
			delete(l.unknown, reverted[i])
		}
		errs = append(errs, c.Err)
	}
	return errors.Join(errs...)
}
