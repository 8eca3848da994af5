package partition

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spillway-io/spillway/lua"
)

// leaseBytes bounds the size of a lease, so that no claim holds Redis up or
// fills a drainer's memory: a full batch of 32 KiB entries still fits in one.
const leaseBytes = 4 << 20

// usualLease bounds the memory that a claim begins with, in bytes: one that
// brings little keeps it all the same.
const usualLease = 64 << 10

// answerMemory is what the answer to a claim is read into, to begin with.
func (sh *shard) answerMemory() []byte { return make([]byte, 0, min(sh.claimed.Load(), usualLease)) }

// DuePartition is a partition that deserves a look, and since when.
type DuePartition struct {
	Partition string
	Due       int64 // Unix ms on the store's clock
}

// Due lists up to limit partitions of a shard by their due time, oldest first,
// skipping offset of them. Partitions that are not due yet are listed too, so
// the first of those tells how long to sleep; total counts those that are due.
func (s *Store) Due(ctx context.Context, ns *Namespace, shard, offset, limit int) (list []DuePartition, total int, err error) {
	if err := s.fit(ctx); err != nil {
		return nil, 0, err
	}
	sh := &ns.shards[shard]
	sh.alarm.reset()
	now, ok := s.clock.now()
	if !ok {
		if now, err = s.readTime(ctx); err != nil {
			return nil, 0, err
		}
	}
	pipe := s.backend.out.Pipeline()
	count := pipe.ZCount(ctx, sh.ready, "-inf", strconv.FormatInt(now, 10))
	members := pipe.ZRangeWithScores(ctx, sh.ready, int64(offset), int64(offset+limit-1))
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, 0, classify(err)
	}
	list = make([]DuePartition, 0, len(members.Val()))
	for _, z := range members.Val() {
		name, _ := z.Member.(string)
		list = append(list, DuePartition{name, int64(z.Score)})
	}
	return list, int(count.Val()), nil
}

// Claim asks for one partition. The caller fills the upper part and finds the
// outcome in the lower.
type Claim struct {
	Namespace  *Namespace
	Partition  string
	MaxBatches int // consecutive batches the lease may cover, 1 or more

	Lease   *Lease // nil: nothing to do now, see Err
	Expired int    // stale entries dropped, and counted
	Err     error  // nil also when the partition was not due, empty or all stale

	token string
}

// Lease is a temporary right to the oldest entries of one partition.
type Lease struct {
	Namespace *Namespace
	Partition string
	Token     string    // unique for ever; empty under at-most-once
	Attempt   int       // 1, or more when the range was presented before
	From, To  int64     // sequences [From, To)
	Cuts      []int64   // ends of its batches, rising; the last is To
	Entries   []Entry   // To-From of them; Entries[i].Seq = From+i. Malformed ones have a zero Occurred: stale
	Until     time.Time // when the right lapses, counted from before the claim was sent
}

// Claim runs all claims in one round trip. lease is how long the right lasts.
// Under at-most-once delivery the entries are settled already, and the Lease
// has no Token.
func (s *Store) Claim(ctx context.Context, claims []*Claim, lease time.Duration) {
	if err := s.fit(ctx); err != nil {
		for _, c := range claims {
			c.Lease, c.Expired, c.Err, c.token = nil, 0, err, ""
			s.metrics.failed(err)
		}
		return
	}
	calls := make([]*call, len(claims))
	for i, c := range claims {
		c.token = ""
		if c.Namespace.Policy.Delivery == AtLeastOnce {
			c.token = rand.Text()
		}
		p, sh := &c.Namespace.Policy, c.Namespace.shardOf(c.Partition)
		calls[i] = newCall(lua.Claim,
			[]string{sh.list(c.Partition), sh.ready, sh.meta(c.Partition), sh.ledger},
			c.Partition, c.token, p.Batch, c.MaxBatches, leaseBytes, p.MaxAge.Milliseconds(),
			lease.Milliseconds(), safetyTTL.Milliseconds(), c.Namespace.full, c.Namespace.linger())
		calls[i].answer.raw = sh.answerMemory()
	}
	until := time.Now().Add(lease)
	s.run(ctx, s.backend.out, calls)
	for i, c := range claims {
		c.Lease, c.Expired, c.Err = nil, 0, calls[i].err
		if c.Err != nil {
			continue
		}
		if err := c.claimed(calls[i], until); err != nil {
			c.Err = &storeError{ErrBroken, fmt.Errorf("%s: %w", lua.Claim.Name, err)}
			s.metrics.failed(c.Err)
		}
	}
}

// claimed reads an answer. Its entries are not copied: the lease keeps the
// answer's memory, which nobody uses again.
func (c *Claim) claimed(a *call, until time.Time) error {
	if least := [...]int{2, 3, 5}; a.numbers[0] < 0 || a.numbers[0] > 2 || len(a.numbers) < least[a.numbers[0]] {
		return errReply
	}
	switch a.numbers[0] {
	case 1:
		c.Expired = int(a.numbers[2])
	case 2:
		from := a.numbers[3]
		l := &Lease{
			Namespace: c.Namespace, Partition: c.Partition, Token: c.token,
			Attempt: int(a.numbers[4]), From: from, To: from, Until: until,
			Cuts: make([]int64, 0, a.more),
		}
		at := a.rest
		for range a.more {
			l.readBatch(&at, a.more)
		}
		if at.broken {
			return errReply
		}
		c.Expired, c.Lease = int(a.numbers[2]), l
		c.Namespace.shardOf(c.Partition).claimed.Store(int64(len(a.answer.raw)))
	}
	return nil
}

// readBatch appends the entries of one batch, where no more are to be expected
// in the others than in the first.
func (l *Lease) readBatch(at *cursor, batches int) {
	n := at.array()
	if l.Entries == nil {
		l.Entries = make([]Entry, 0, min(n*batches, len(at.rest)/len("$0\r\n\r\n")))
	}
	for range n {
		raw := at.bulk()
		e, err := ParseEntry(raw)
		if err != nil {
			e = Entry{Payload: raw}
		}
		e.Seq = l.To
		l.To++
		l.Entries = append(l.Entries, e)
	}
	l.Cuts = append(l.Cuts, l.To)
}

// Settlement ends, wholly or in part, what a lease began. Exactly one of the
// two forms is used:
//
//	commit   Lo < Hi: the entries [Lo, Hi) are done, with their counts and dead letters
//	release  Lo == Hi: the lease is given back and the rest comes due after Delay
//
// A commit that reaches the lease's To ends the lease.
type Settlement struct {
	Lease *Lease

	Lo, Hi                   int64
	Delivered, Expired, Dead int      // their sum is Hi-Lo
	DeadLetters              [][]byte // one record per Dead

	Delay   time.Duration // release: when the rest comes due
	Attempt int           // release: presentations to remember

	// Err is nil, ErrGone when the lease is no longer ours, *RangeError when
	// Lo is not where the store stands, or Is one of the store's errors.
	Err error
	// Before: the range was past Hi already, and nothing was written. An earlier
	// commit of it ran unseen; if there was none, its entries vanished by other
	// hands, and are lost.
	Before bool
}

// RangeError refuses a commit that does not start where the store stands:
// entries of the range vanished by other hands. Commit [From, Hi) instead.
type RangeError struct{ From int64 }

func (e *RangeError) Error() string { return "commit starts at another sequence than the range" }

// Settle runs all settlements in one round trip. A lease appears in only one of
// them. Repeating one whose outcome is unknown is safe.
func (s *Store) Settle(ctx context.Context, settlements []*Settlement) {
	calls := make([]*call, len(settlements))
	for i, t := range settlements {
		calls[i] = settleCall(t)
	}
	s.run(ctx, s.backend.out, calls)
	for i, t := range settlements {
		t.Before = false
		if t.Err = calls[i].err; t.Err != nil {
			continue
		}
		switch n := calls[i].numbers; {
		case n[0] == 0:
			t.Err = ErrGone
		case n[0] == 2:
			t.Before = true
		case n[0] == 3 && len(n) > 2:
			t.Err = &RangeError{n[2]}
		}
	}
}

func settleCall(t *Settlement) *call {
	l := t.Lease
	sh := l.Namespace.shardOf(l.Partition)
	if t.Lo == t.Hi {
		return releaseCall(sh, l.Partition, l.Token, t.Delay, t.Attempt)
	}
	argv := make([]any, 0, 10+len(t.DeadLetters))
	argv = append(argv, l.Partition, l.Token, t.Lo, t.Hi, t.Delivered, t.Expired, t.Dead,
		l.Namespace.full, l.Namespace.linger(), l.Namespace.Policy.MaxDead)
	for _, letter := range t.DeadLetters {
		argv = append(argv, letter)
	}
	return newCall(lua.Commit,
		[]string{sh.list(l.Partition), sh.ready, sh.meta(l.Partition), sh.ledger, sh.dead}, argv...)
}

func releaseCall(sh *shard, partition, token string, delay time.Duration, attempt int) *call {
	return newCall(lua.Release, []string{sh.list(partition), sh.ready, sh.meta(partition)},
		partition, token, max(0, delay.Milliseconds()), attempt)
}

// notPresented takes the presentation that a claim counted back.
const notPresented = -1

// Forget releases claims whose outcome is unknown, if they did run, so that
// their partitions need not wait for the lease to lapse. It returns an error
// when the store could not be asked; then the leases lapse.
func (s *Store) Forget(ctx context.Context, claims []*Claim) error {
	var calls []*call
	for _, c := range claims {
		if c.token != "" && errors.Is(c.Err, ErrUnknown) {
			calls = append(calls, releaseCall(c.Namespace.shardOf(c.Partition), c.Partition, c.token, 0, notPresented))
		}
	}
	s.run(ctx, s.backend.out, calls)
	for _, c := range calls {
		if c.err != nil {
			return c.err
		}
	}
	return nil
}

func (s *Store) readTime(ctx context.Context) (int64, error) {
	sent := time.Now()
	t, err := s.backend.out.Time(ctx).Result()
	if err != nil {
		return 0, classify(err)
	}
	s.clock.observe(sent, time.Now(), t.UnixMilli())
	return t.UnixMilli(), nil
}
