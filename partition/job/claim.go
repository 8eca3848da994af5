package job

import (
	"errors"
	"slices"
	"strings"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// outTTL is how long the store remembers what the last claim of a lane handed out, in ms. A
// lane takes it back within that.
const outTTL = 10 * 60 * 1000

// defaultMaxBytes is what Claim.MaxBytes 0 means.
const defaultMaxBytes = 4 << 20

// bad is ErrBadArgument where the claim is outside its bounds.
func (c *Claim) bad() error {
	ns := c.Namespace
	if ns == nil || c.Shard < 0 || len(c.Queues) < 1 ||
		len(c.Queues) > MaxQueues ||
		c.TTR < 0 || c.TTR > MaxTTR || c.Count < 1 || c.Count > MaxCount || c.MaxBytes < 0 {
		return ErrBadArgument
	}
	for i, q := range c.Queues {
		if !partition.ValidAnyQueue(q) || slices.Contains(c.Queues[:i], q) {
			return ErrBadArgument
		}
	}
	return nil
}

func (c *Claim) maxBytes() int {
	if c.MaxBytes == 0 {
		return defaultMaxBytes
	}
	return min(c.MaxBytes, maxAnswer)
}

// A request is claims that ask for the same: one request of the script.
type request struct {
	sh     *shard
	queues []string
	ttr    int64 // ms
	count  int
	bytes  int
	left   bool
	claims []*Claim
}

// planClaims puts claims into calls, one a shard, and returns those without room. A second
// call of the same lane would make the store forget what the first handed out. A claim counts
// as one, whatever it asks for: mostly there is less, and the script bounds what all get.
func (r *run) planClaims(list []*Claim) (later []*Claim) {
	for _, c := range list {
		sh := c.at
		call := r.callOf(claims, sh)
		if call == nil {
			call = r.next(claims, sh)
		} else if !call.fits(c.Queues, 1, 0) {
			later = append(later, c)
			continue
		}
		if q := call.alike(c); q != nil {
			q.claims = append(q.claims, c)
			q.count += c.Count
			q.bytes += c.maxBytes()
			q.left = q.left || c.ReportLeft
			call.count(c.Queues, 1, 0)
			continue
		}
		q := r.newRequest()
		*q = request{sh, c.Queues, leaseMS(c.TTR), c.Count, c.maxBytes(), c.ReportLeft,
			append(q.claims[:0], c)}
		call.add(q, c.Queues, 1, 0)
	}
	return later
}

func (r *run) callOf(k kind, sh *shard) *planned {
	for i := range r.calls {
		if r.calls[i].kind == k && r.calls[i].sh == sh {
			return &r.calls[i]
		}
	}
	return nil
}

// alike is a request that a claim can be part of.
func (c *planned) alike(claim *Claim) *request {
	for _, it := range c.items {
		q := it.(*request)
		if q.ttr == leaseMS(claim.TTR) && q.count+claim.Count <= MaxCount &&
			slices.Equal(q.queues, claim.Queues) {
			return q
		}
	}
	return nil
}

func (r *run) newRequest() *request {
	if r.usedR == len(r.requests) {
		r.requests = append(r.requests, &request{})
	}
	r.usedR++
	return r.requests[r.usedR-1]
}

// answerBytes is how many bytes of records a call with these requests may return, about.
func answerBytes(items []item) (bytes int) {
	for _, it := range items {
		bytes += it.(*request).bytes
	}
	return min(bytes, maxAnswer)
}

func (r *run) fillRequests(s *Store, l *Lane, c *backend.Call, items []item) {
	sh := items[0].(*request).sh
	r.left = r.left[:0]
	for _, it := range items {
		q := it.(*request)
		for _, queue := range q.queues {
			i := r.numbers.number(queue)
			if i > len(r.left) {
				r.left = append(r.left, false)
			}
			r.left[i-1] = r.left[i-1] || q.left
		}
	}
	r.limits = r.limits[:0]
	limited, counted := 0, false
	for _, queue := range r.numbers.names {
		l := items[0].(*request).claims[0].Namespace.limit(queue)
		if l.pause > 0 {
			limited++
		}
		counted = counted || l.leases > 0
		r.limits = append(r.limits, l)
	}
	n := len(r.numbers.names)
	c.Begin(luajob.Claim, sh.Breaker, 8+3*n+limited)
	if c.Spare = &sh.ends; counted {
		sh.ends.Need()
	}
	c.Args = append(c.Args, sh.args.ledger, sh.args.lease, sh.args.attempts, sh.args.queues)
	r.args.join(c, sh.Prefix, "out:", l.name)
	c.Args = append(c.Args, sh.args.tombstones, sh.args.paused, sh.args.taken)
	for _, queue := range r.numbers.names {
		r.args.readyJobsIDs(c, sh, queue)
	}
	for i, queue := range r.numbers.names {
		if r.limits[i].pause > 0 {
			r.args.join(c, sh.Prefix, "rate:", queue)
		}
	}
	r.token = l.token()
	r.args.join(c, r.token)
	r.args.int(c, outTTL)
	r.args.int(c, int64(answerBytes(items)))
	r.args.int(c, int64(n))
	for _, queue := range r.numbers.names {
		r.args.join(c, queue)
	}
	for i, left := range r.left {
		r.args.wish(c, left, r.limits[i], sh, s.wake.(string))
	}
	for _, it := range items {
		q := it.(*request)
		r.args.int(c, q.ttr)
		r.args.int(c, int64(q.count))
		r.args.int(c, int64(len(q.queues)))
		for _, queue := range q.queues {
			r.args.int(c, int64(r.numbers.number(queue)))
		}
	}
	// The jobs keep the memory of the answer.
	if c.Answer.Raw == nil {
		c.Answer.Raw = make([]byte, 0, min(sh.answer.Load(), usualAnswer))
	}
	// Until its answer is read, the outcome is unknown.
	l.unknown[sh] = unknownClaim{r.token, slices.Clone(r.numbers.names)}
}

// usualAnswer bounds the memory that a claim begins with, in bytes.
const usualAnswer = 64 << 10

// claimed reads the answer of a call and shares the jobs of each request out.
func (s *Store) claimed(l *Lane, pack backend.Pack[item]) {
	sh := pack.Items[0].(*request).sh
	err := pack.Err
	if err == nil {
		err = s.readClaims(pack, l.unknown[sh].queues)
	}
	if err != nil {
		for _, it := range pack.Items {
			for _, c := range it.(*request).claims {
				c.Jobs = nil
				c.Left = nil
				c.Held = nil
				c.Err = err
			}
		}
	}
	if err == nil || errors.Is(err, backend.ErrUnavailable) || isAnswer(err) {
		delete(l.unknown, sh) // it handed out what was read, or nothing
	}
}

// noSlot is what the script says is left of a queue whose leases are as many as its rule allows.
const noSlot = -1 << 50

// readClaims reads the answer; names are the queues of the call.
func (s *Store) readClaims(pack backend.Pack[item], names []string) error {
	sh := pack.Items[0].(*request).sh
	at := &pack.Rest
	expired, lost := at.Int(), at.Int()
	left := make([]int, len(names))
	for i := range left {
		switch left[i] = int(at.Int()); {
		case left[i] == noSlot:
			left[i] = 0 // who frees one wakes those who wait
			s.metrics.full.Inc()
		case left[i] < -1:
			s.metrics.held.Inc()
		}
	}
	jobs, bytes := 0, 0
	for _, it := range pack.Items {
		q := it.(*request)
		n := at.Array() / 4
		if at.Broken {
			return pack.Misread()
		}
		got := make([]Job, 0, n)
		for range n {
			i := at.Int()
			seq := at.Bulk()
			attempt := at.Int()
			record := at.Bulk()
			if at.Broken || i < 1 || i > int64(len(names)) {
				return pack.Misread()
			}
			bytes += len(record)
			job := Job{Queue: names[i-1], Attempt: int(attempt), Now: pack.Now, At: pack.Now + q.ttr}
			job.Seq, _ = number(seq)
			if !parseRecord(record, &job) {
				s.metrics.malformed.Inc()
				continue
			}
			job.Shard, job.Published = sh.Number, job.Seq/1000
			got = append(got, job)
		}
		q.claims[0].Namespace.setIDs(got)
		jobs += len(got)
		q.share(got)
		q.report(names, left)
		if len(got) > 0 {
			s.comesDue(sh, pack.Now+q.ttr)
		}
	}
	if at.Broken {
		return pack.Misread()
	}
	for _, it := range pack.Items {
		for _, c := range it.(*request).claims {
			if c.Namespace.Noted() {
				for i := range c.Jobs {
					x := &c.Jobs[i]
					s.note(c.Namespace, x.Queue, x.Ref, TraceEvent{
						AtMS: pack.Now, Event: "claimed", By: c.By, Attempt: x.Attempt})
				}
			}
			c.More = len(c.Jobs) < c.Count && (c.More || bytes >= answerBytes(pack.Items))
		}
	}
	s.metrics.expired.Add(float64(expired))
	s.metrics.lost.Add(float64(lost))
	if jobs > 0 {
		sh.answer.Store(int64(len(pack.Answer.Raw)))
		pack.Answer.Raw = nil
	}
	return nil
}

// setIDs gives jobs of one namespace their ids, which share one piece of memory.
func (n *Namespace) setIDs(jobs []Job) {
	if len(jobs) == 0 {
		return
	}
	var text strings.Builder
	size := 0
	for i := range jobs {
		size += idLen + 1 + len(jobs[i].CallerID)
	}
	text.Grow(size)
	var memory [idLen + 1 + MaxCallerIDLen]byte
	for i := range jobs {
		j := &jobs[i]
		text.Write(n.AppendID(memory[:0], j.Shard, j.Queue, j.Seq, j.CallerID))
	}
	rest := text.String()
	for i := range jobs {
		j := &jobs[i]
		length := idLen
		if j.CallerID != "" {
			length += 1 + len(j.CallerID)
		}
		j.ID, rest = rest[:length], rest[length:]
		if j.CallerID != "" {
			j.CallerID = j.ID[idLen+1:]
		}
	}
}

// share gives each claim its part, in order: up to its count and its bytes. What is beyond the
// bytes of all goes to those whose count allows it.
func (q *request) share(jobs []Job) {
	for _, c := range q.claims {
		n, bytes := 0, 0
		for n < len(jobs) && n < c.Count && (n == 0 || bytes < c.maxBytes()) {
			bytes += len(jobs[n].Payload) + len(jobs[n].Attributes)
			n++
		}
		c.Jobs, jobs = jobs[:n:n], jobs[n:]
	}
	for _, c := range q.claims {
		n := min(len(jobs), c.Count-len(c.Jobs))
		if n > 0 {
			c.Jobs = append(c.Jobs, jobs[:n]...)
			jobs = jobs[n:]
		}
	}
}

// report tells each claim what is left of its queues. The store knows that only of the queues
// that were asked for, and of those that it did not go through to the end.
func (q *request) report(names []string, left []int) {
	for _, c := range q.claims {
		if c.ReportLeft {
			c.Left, c.Held = make([]int, len(c.Queues)), make([]int64, len(c.Queues))
		}
		for i, queue := range c.Queues {
			n := left[slices.Index(names, queue)]
			if c.ReportLeft {
				c.Left[i] = max(n, -1)
			}
			switch {
			case n < -1 && c.ReportLeft:
				c.Held[i] = int64(-1 - n)
			case n == -1 && len(c.Jobs) == 0:
				c.Err = errForeign
			}
			c.More = c.More || n > 0
		}
	}
}
