package partition

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
)

// Bounds of one script call of claim and of commit, which together keep it below
// about 2 ms of Redis.
const (
	// claimBytes is what a claim reads at most, where an entry counts for 512 bytes
	// at least (the script's rule): 2,048 small entries, or 16 full batches. It also
	// bounds a lease, which holds one entry at least.
	claimBytes = 1 << 20
	// maxCallLeases is how many partitions a call claims, settles or gives back.
	maxCallLeases = 64
	// maxLetterBytes bounds the dead letters of one commit; a settlement that
	// brings more is a call of its own.
	maxLetterBytes = 1 << 20
)

// usualLease bounds the memory that a claim begins with, in bytes: one that
// brings little keeps it all the same.
const usualLease = 64 << 10

// answerMemory is what the answer to a claim is read into, to begin with.
func (sh *shard) answerMemory() []byte { return make([]byte, 0, min(sh.claimed.Load(), usualLease)) }

// DuePartition is a partition of the active set.
type DuePartition struct {
	Partition string
	Due       int64 // Unix ms on the store's clock; of those that are due: now
}

// Due lists up to limit partitions of a shard that are due now, those that have
// been for longest first, skipping offset of them; total counts all that are due.
// Where those are all, the first that is not due yet follows, which tells how
// long to sleep.
func (s *Store) Due(ctx context.Context, ns *Namespace, shard, offset, limit int) (list []DuePartition, total int, err error) {
	if err := s.ensureCompatible(ctx); err != nil {
		return nil, 0, err
	}
	sh := &ns.shards[shard]
	if !sh.breaker.allow() {
		return nil, 0, errUnreachable
	}
	sh.alarm.reset()
	now, ok := s.clock.now()
	if !ok {
		if now, err = s.readTime(ctx); err != nil {
			return nil, 0, err
		}
	}
	until := strconv.FormatInt(now, 10)
	pipe := s.backend.out.Pipeline()
	count := pipe.ZCount(ctx, sh.ready, "-inf", until)
	due := pipe.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: sh.ready, ByScore: true, Start: "-inf", Stop: until, Offset: int64(offset), Count: int64(limit),
	})
	later := pipe.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: sh.ready, ByScore: true, Start: "(" + until, Stop: "+inf", Count: 1})
	_, err = pipe.Exec(ctx)
	err = classify(err)
	if sh.breaker.done(err); err != nil {
		return nil, 0, err
	}
	list = make([]DuePartition, 0, len(due.Val())+1)
	for _, name := range due.Val() {
		list = append(list, DuePartition{name, now})
	}
	for _, z := range later.Val() {
		if name, ok := z.Member.(string); ok && len(list) < limit {
			list = append(list, DuePartition{name, int64(z.Score)})
		}
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
	Token     string  // never used before for this partition
	Attempt   int     // 1, or more when the range was presented before
	From, To  int64   // sequences [From, To)
	Cuts      []int64 // ends of its batches, rising; the last is To
	Entries   []Entry // To-From of them; Entries[i].Seq = From+i. Malformed ones have a zero Occurred: stale
	// Done[i]: the sink accepted Entries[i] in an earlier presentation; it is not
	// written again, and counted as delivered. nil: none.
	Done  []bool
	Until time.Time // when the right lapses, counted from before the claim was sent
}

// Claim runs all claims, those of a shard by one script call for up to 64 of them,
// and by further ones where the entries are too many for one. lease is how long
// the rights last. A partition appears in only one of the claims.
func (s *Store) Claim(ctx context.Context, claims []*Claim, lease time.Duration) {
	if err := s.ensureCompatible(ctx); err != nil {
		for _, c := range claims {
			c.Lease, c.Expired, c.Err, c.token = nil, 0, err, ""
			s.metrics.failed(err)
		}
		return
	}
	for len(claims) > 0 {
		jobs := runJobs(planClaims(claims), func(c *call, items []*Claim) { fillClaims(c, items, lease) },
			func(calls []*call) { s.run(ctx, s.backend.out, calls) }, nil)
		var left []*Claim // what the calls had no room for; each takes one at least
		for _, j := range jobs {
			left = append(left, s.claimed(j, j.sent.Add(lease))...)
		}
		claims = left
	}
}

// planClaims deals claims out to calls: as many as fit, of one shard and of one depth.
func planClaims(claims []*Claim) []job[*Claim] {
	var jobs []job[*Claim]
next:
	for _, c := range claims {
		for i := len(jobs) - 1; i >= 0; i-- {
			first := jobs[i].items[0]
			if first.MaxBatches == c.MaxBatches && first.shard() == c.shard() && len(jobs[i].items) < maxCallLeases {
				jobs[i].items = append(jobs[i].items, c)
				continue next
			}
		}
		jobs = append(jobs, job[*Claim]{&call{}, []*Claim{c}})
	}
	return jobs
}

func (c *Claim) shard() *shard { return c.Namespace.shardOf(c.Partition) }

func fillClaims(c *call, claims []*Claim, lease time.Duration) {
	ns, sh := claims[0].Namespace, claims[0].shard()
	c.begin(lua.Claim, sh, 2+2*len(claims))
	c.args = append(c.args, sh.ready, sh.ledger)
	for _, claim := range claims {
		c.args = append(c.args, sh.list(claim.Partition), sh.meta(claim.Partition))
	}
	token := strconv.FormatInt(max(1, lease.Milliseconds()), 10) + "." + rand.Text()
	c.args = append(c.args, token, ns.Policy.Batch, claims[0].MaxBatches, claimBytes, ns.Policy.MaxAge.Milliseconds(), ns.full)
	for _, claim := range claims {
		claim.token = token
		c.args = append(c.args, claim.Partition)
	}
	c.answer.raw = sh.answerMemory()
}

// claimed reads the answers of a call, and returns the claims that it had no room for.
func (s *Store) claimed(j job[*Claim], until time.Time) (left []*Claim) {
	for _, c := range j.items {
		c.Lease, c.Expired, c.Err = nil, 0, j.err
		if c.Err != nil {
			continue
		}
		if c.Err = j.refused(); c.Err == nil {
			var served bool
			if served, c.Err = c.read(j.call, until); !served && c.Err == nil {
				left = append(left, c)
			}
		}
		if c.Err != nil {
			s.metrics.failed(c.Err)
		}
	}
	if j.err == nil {
		j.items[0].shard().claimed.Store(int64(len(j.answer.raw)))
	}
	return left
}

// read reads the answer of one claim; it is false when the call had no room for it. The
// entries are not copied: leases keep the answer's memory, which nobody uses again.
func (c *Claim) read(a *call, until time.Time) (served bool, err error) {
	at := &a.rest
	switch code := at.whole(); {
	case at.broken:
	case code == 0:
		at.whole() // when it is due
	case code == 1:
		c.Expired = int(at.whole())
	case code == 2, code == 4:
		c.Expired = int(at.whole())
		c.Lease = c.readLease(at, code == 4, until)
	case code == 3:
		return false, nil
	default:
		at.broken = true
	}
	if at.broken {
		c.Lease = nil
		return false, a.misread()
	}
	return true, nil
}

// readLease reads a lease: several batches, each an array, or one whose entries are
// values of the reply itself.
func (c *Claim) readLease(at *cursor, several bool, until time.Time) *Lease {
	from, attempt, done := at.whole(), at.whole(), at.bulk()
	n := int(at.whole())
	if n < 1 || n > len(at.rest) {
		at.broken = true
		return nil
	}
	l := &Lease{
		Namespace: c.Namespace, Partition: c.Partition, Token: c.token,
		Attempt: int(attempt), From: from, To: from, Until: until,
	}
	if several {
		l.Cuts = make([]int64, 0, n)
		for range n {
			l.readBatch(at, at.array(), n)
		}
	} else {
		l.readBatch(at, n, 1)
	}
	l.Done = readDone(done, len(l.Entries))
	return l
}

// readDone is what the sink has accepted of n entries, the last of which the last
// byte of mask is for; nil for nothing.
func readDone(mask []byte, n int) []bool {
	if len(mask) == 0 {
		return nil
	}
	done := make([]bool, n)
	for i := max(0, len(mask)-n); i < len(mask); i++ {
		done[n-len(mask)+i] = mask[i] == '1'
	}
	return done
}

// writeDone is the reverse of readDone.
func writeDone(done []bool) string {
	mask := make([]byte, len(done))
	for i, d := range done {
		mask[i] = '0'
		if d {
			mask[i] = '1'
		}
	}
	return string(mask)
}

// readBatch appends the n entries of a batch, where no more are to be expected in
// the others than in the first.
func (l *Lease) readBatch(at *cursor, n, batches int) {
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
	// Done[i], of a release: the sink has accepted Lease.Entries[i]; the store keeps
	// that for the next presentation. nil: none.
	Done []bool

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

// Settle runs all settlements, those of a shard by one script call for up to 64
// commits and one for up to 64 releases. A lease appears in only one of them.
// Repeating one whose outcome is unknown is safe.
func (s *Store) Settle(ctx context.Context, settlements []*Settlement) {
	jobs := runJobs(planSettlements(settlements), fillSettlements, func(calls []*call) { s.run(ctx, s.backend.out, calls) }, nil)
	for _, j := range jobs {
		for _, t := range j.items {
			t.Before, t.Err = false, j.err
			if t.Err != nil {
				continue
			}
			if t.Err = j.refused(); t.Err == nil {
				t.Err = t.read(j.call)
			}
			if errors.Is(t.Err, ErrBroken) || errors.Is(t.Err, ErrUnavailable) {
				s.metrics.failed(t.Err)
			}
		}
	}
}

// read reads the answer of one settlement.
func (t *Settlement) read(a *call) error {
	switch code := a.rest.whole(); {
	case a.rest.broken:
		return a.misread()
	case code == 0:
		return ErrGone
	case code == 2:
		t.Before = true
	case code == 3:
		if from := a.rest.whole(); !a.rest.broken {
			return &RangeError{from}
		}
		return a.misread()
	}
	return nil
}

func (t *Settlement) release() bool { return t.Lo == t.Hi }

func (t *Settlement) shard() *shard { return t.Lease.Namespace.shardOf(t.Lease.Partition) }

// planSettlements deals settlements out to calls: those of a shard and a kind to one
// call until it is full. A partition that comes twice, as another holder's, is in two.
func planSettlements(settlements []*Settlement) []job[*Settlement] {
	var jobs []job[*Settlement]
	var letters []int // bytes of dead letters a job
next:
	for _, t := range settlements {
		bytes := 0
		for _, letter := range t.DeadLetters {
			bytes += len(letter)
		}
		for i := len(jobs) - 1; i >= 0; i-- {
			items := jobs[i].items
			if items[0].release() != t.release() || items[0].shard() != t.shard() {
				continue
			}
			twice := false
			for _, other := range items {
				twice = twice || other.Lease.Partition == t.Lease.Partition
			}
			if twice || len(items) >= maxCallLeases || letters[i]+bytes > maxLetterBytes {
				break
			}
			jobs[i].items = append(items, t)
			letters[i] += bytes
			continue next
		}
		jobs = append(jobs, job[*Settlement]{&call{}, []*Settlement{t}})
		letters = append(letters, bytes)
	}
	return jobs
}

func fillSettlements(c *call, settlements []*Settlement) {
	if settlements[0].release() {
		fillReleases(c, settlements)
		return
	}
	ns, sh := settlements[0].Lease.Namespace, settlements[0].shard()
	keys, letters := 2+2*len(settlements), 0
	for _, t := range settlements {
		letters += len(t.DeadLetters)
	}
	if letters > 0 {
		keys++
	}
	c.begin(lua.Commit, sh, keys)
	c.args = append(c.args, sh.ready, sh.ledger)
	for _, t := range settlements {
		c.args = append(c.args, sh.list(t.Lease.Partition), sh.meta(t.Lease.Partition))
	}
	if letters > 0 {
		// Declared only where it is needed: while a cluster moves the slot, a key that is
		// not there makes it refuse the call.
		c.args = append(c.args, sh.dead)
	}
	c.args = append(c.args, ns.full, ns.linger(), ns.Policy.MaxDead, ns.Policy.MaxDeadBytes)
	for _, t := range settlements {
		c.args = append(c.args, t.Lease.Partition, t.Lease.Token, t.Lo, t.Hi, t.Expired, t.Dead)
		for _, letter := range t.DeadLetters {
			c.args = append(c.args, letter)
		}
	}
}

func fillReleases(c *call, releases []*Settlement) {
	sh := releases[0].shard()
	c.begin(lua.Release, sh, 1+len(releases))
	c.args = append(c.args, sh.ready)
	for _, t := range releases {
		c.args = append(c.args, sh.meta(t.Lease.Partition))
	}
	for _, t := range releases {
		c.args = append(c.args, t.Lease.Partition, t.Lease.Token, max(0, t.Delay.Milliseconds()), t.Attempt, writeDone(t.Done))
	}
}

// notPresented takes the presentation that a claim counted back.
const notPresented = -1

// Forget releases claims whose outcome is unknown, if they did run, so that
// their partitions need not wait for the lease to lapse. It returns an error
// when the store could not be asked; then the leases lapse.
func (s *Store) Forget(ctx context.Context, claims []*Claim) error {
	var releases []*Settlement
	for _, c := range claims {
		if c.token != "" && errors.Is(c.Err, ErrUnknown) {
			lease := &Lease{Namespace: c.Namespace, Partition: c.Partition, Token: c.token}
			releases = append(releases, &Settlement{Lease: lease, Attempt: notPresented})
		}
	}
	s.Settle(ctx, releases)
	for _, r := range releases {
		if r.Err != nil && !errors.Is(r.Err, ErrGone) {
			return r.Err
		}
	}
	return nil
}

func (s *Store) readTime(ctx context.Context) (int64, error) {
	ms, err := s.readTimeOf(ctx, s.backend.out)
	return ms, classify(err)
}

func (s *Store) readTimeOf(ctx context.Context, client redis.Cmdable) (int64, error) {
	sent := time.Now()
	t, err := client.Time(ctx).Result()
	if err != nil {
		return 0, err
	}
	s.clock.observe(sent, time.Now(), t.UnixMilli())
	return t.UnixMilli(), nil
}
