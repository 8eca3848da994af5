package php

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	luaphp "github.com/spillway-io/spillway/lua/php"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
)

// claims are those of a batch. Claims that ask for the same queues and lease share calls: all
// children of a worker, and all workers whose requests came together.
type claims []*claim

// claim is the claims of a batch of the same queues under the same lease.
type claim struct {
	of      *namespace
	queues  []string
	ttr     time.Duration
	members []*job.Claim
	at      int  // the queue that is asked
	asked   bool // in this round
	member  int  // the first that may get more
	bytes   int  // of the payloads that it has
	sent    *backend.Call
	token   string
	jobs    []*delivered // of the answer
	counts  settlement   // of those whose attempts the script did not find
	left    int64
	bounded bool // the call ended before there were enough: there may be more
}

// delivered is a payload of an answer. counted: nil where the script did it.
type delivered struct {
	job.Job
	counted *line
}

// claims groups the claims of a batch. One that fails at once is in none.
func (s *Store) claims(b *job.Batch) (all claims) {
	type key struct {
		namespace, queues string
		ttr               time.Duration
	}
	of := map[key]*claim{}
	for _, c := range b.Claims {
		c.Jobs, c.Left, c.Held, c.More, c.Err = nil, nil, nil, false, nil
		if c.ReportLeft {
			c.Left, c.Held = make([]int, len(c.Queues)), make([]int64, len(c.Queues))
		}
		k := key{c.Namespace.Name, strings.Join(c.Queues, ","), c.TTR}
		if of[k] == nil {
			x := &claim{queues: c.Queues, ttr: c.TTR}
			for _, queue := range c.Queues {
				n, err := s.of(c.Namespace, queue)
				if err != nil {
					c.Err = err
				}
				x.of = n
			}
			if c.Err != nil || len(c.Queues) == 0 {
				continue
			}
			of[k] = x
			all = append(all, x)
		}
		of[k].members = append(of[k].members, c)
	}
	return all
}

// targets are the queues that are asked.
func (all claims) targets() (targets []target) {
	for _, x := range all {
		for _, queue := range x.queues {
			targets = append(targets, target{x.of.Name, queue})
		}
	}
	return targets
}

// next are the claims that ask their next queue, or the same once more where a call ended early, with
// their calls: those that have too few. A lane asks a queue once in a round: another answer would take the memory of the first.
func (all claims) next(l *lane) (asked claims) {
	busy := map[target]bool{}
	for _, x := range all {
		if x.asked {
			x.asked = false
			if !x.bounded {
				x.at++
			}
		}
		if x.member == len(x.members) || x.at == len(x.queues) {
			continue
		}
		t := target{x.of.Name, x.queues[x.at]}
		if _, unknown := l.unknown[t]; unknown {
			x.fail(partition.ErrUnavailable) // the claim before was not taken back yet
			continue
		}
		if !busy[t] { // else in the next round
			busy[t], x.asked = true, true
			x.ask(l)
			asked = append(asked, x)
		}
	}
	return asked
}

func callsOf(all claims) (calls []*backend.Call) {
	for _, x := range all {
		calls = append(calls, x.sent)
	}
	return calls
}

// ask makes the call for the queue that is next.
func (x *claim) ask(l *lane) {
	n, queue := x.of, x.queues[x.at]
	k := n.keys(queue)
	count, bytes := 0, 0
	for _, c := range x.members[x.member:] {
		count += c.Count - len(c.Jobs)
		if c.MaxBytes == 0 {
			c.MaxBytes = defaultMaxBytes
		}
		bytes += c.MaxBytes
	}
	x.token = l.token()
	x.sent = backend.NewCall(
		luaphp.Claim,
		n.breaker,
		append(k.nine(), k.prefix+"out:"+l.name),
		x.token,
		outTTL.Milliseconds(),
		max(1, x.ttr.Milliseconds()),
		min(count,
			maxCount),
		min(bytes, maxClaimBytes),
		flag(n.Flavor.onRelease()),
		flag(n.Flavor.notifies()),
		flag(n.RetryAfter > 0),
	)
}

// read reads an answer, and finds the attempts that the script did not.
func (x *claim) read(l *lane) {
	c, queue := x.sent, x.queues[x.at]
	x.jobs, x.counts, x.bounded = nil, settlement{of: x.of, queue: queue}, false
	if c.Err != nil {
		if errors.Is(c.Err, partition.ErrUnknown) {
			l.unknown[target{x.of.Name, queue}] = x.token
		}
		x.fail(explained(c.Err))
		return
	}
	for range 3 { // moved, lapsed, unreadable: the account has them
		c.Rest.Int()
	}
	x.left = c.Rest.Int()
	bytes := 0
	for more := c.More - 4; more >= 4; more -= 4 {
		seq, before, deadline, payload := x.number(), x.number(), x.number(), c.Rest.Bulk()
		bytes += len(payload)
		d := &delivered{}
		if before < 0 {
			of := readDeliveries(payload)
			d.counted = &line{seq: seq}
			d.counted.verb, d.counted.number = counting(x.of.Flavor, payload, of)
			x.counts.lines = append(x.counts.lines, d.counted)
			if before == lapsedAtPHP && d.counted.verb != unreadable {
				d.counted = &line{seq: seq, verb: verbs[job.Release]}
				x.counts.lines = append(x.counts.lines, d.counted)
			}
			before = of.attempt(x.of.Flavor) - 1 + x.of.Flavor.first()
		}
		d.Job = x.of.delivery(queue, seq, before-x.of.Flavor.first()+1, payload)
		d.Now, d.At = c.Now, deadline
		x.jobs = append(x.jobs, d)
	}
	x.bounded = bytes >= maxClaimBytes && x.left > 0
	if c.Rest.Broken {
		x.unclear(l, c.Misread())
	}
}

// What a claim answers for attempts of a payload that PHP let lapse, and the verb for what is no JSON.
const (
	lapsedAtPHP = -2
	unreadable  = "unreadable"
)

// unclear ends a claim after an answer of which no job is handed out: revert takes them back.
func (x *claim) unclear(l *lane, err error) {
	l.unknown[target{x.of.Name, x.queues[x.at]}] = x.token
	x.jobs, x.counts.lines, x.bounded = nil, nil, false
	x.fail(err)
}

// handOut hands the jobs of an answer out, to the first claim until it is full, then to the next.
func (x *claim) handOut(l *lane) {
	for _, line := range x.counts.lines {
		if line.err != nil {
			x.unclear(l, line.err)
			return
		}
	}
	if x.sent.Err != nil {
		return
	}
	for _, d := range x.jobs {
		if d.counted != nil && d.counted.state != settledLeased { // it is no job, or its lease is gone
			continue
		}
		for x.member < len(x.members)-1 && x.full() {
			x.member, x.bytes = x.member+1, 0
		}
		to := x.members[x.member]
		to.Jobs = append(to.Jobs, d.Job)
		x.bytes += len(d.Payload)
	}
	for x.member < len(x.members) && x.full() {
		x.member, x.bytes = x.member+1, 0
	}
	for i, to := range x.members {
		if to.ReportLeft {
			to.Left[x.at] = int(x.left)
		}
		to.More = to.More || !x.bounded && x.left > 0 && i >= x.member && len(to.Jobs) < to.Count
	}
}

// full reports whether the first claim that may get more gets none.
func (x *claim) full() bool {
	c := x.members[x.member]
	return len(c.Jobs) == c.Count || x.bytes >= c.MaxBytes
}

// number reads a number that the script answers as text or as such.
func (x *claim) number() int64 {
	if !x.sent.Rest.IsBulk() {
		return x.sent.Rest.Int()
	}
	n, err := strconv.ParseInt(string(x.sent.Rest.Bulk()), 10, 64)
	if err != nil {
		x.sent.Rest.Broken = true
	}
	return n
}

// fail ends the claims that have no jobs yet.
func (x *claim) fail(err error) {
	for _, c := range x.members[x.member:] {
		if len(c.Jobs) == 0 {
			c.Err = err
		}
	}
	x.member = len(x.members)
}

// delivery is a payload as a job.
func (n *namespace) delivery(queue string, seq, attempt int64, payload []byte) job.Job {
	facts := Read(payload)
	j := job.Job{
		Queue:     queue,
		Ref:       job.Ref{Seq: seq},
		Attempt:   int(max(-1, min(attempt, job.MaxAttempt))),
		Tries:     int(min(facts.tries, job.MaxAttempt)),
		Published: facts.created,
		Payload:   payload,
	}
	if facts.tries < 0 {
		j.Tries = int(n.tries(queue))
	}
	if seq > 0 {
		j.ID = n.ID(0, queue, seq, "")
	}
	j.Bound = facts.Unique || facts.Batch || facts.Chain
	j.PHP, _ = json.Marshal(facts.shown()) // of texts and numbers alone
	return j
}
