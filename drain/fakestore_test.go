package drain

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

// A fault is what goes wrong with one script: it does not run, or it runs and
// its answer is lost.
type fault struct {
	err error
	ran bool
}

var (
	unavailable = fault{err: partition.ErrUnavailable}
	lostReply   = fault{err: partition.ErrUnknown, ran: true}
	lostRequest = fault{err: partition.ErrUnknown}
)

// fakeStore is a model of partition.Store in memory: the rules of its doc
// comments and of the scripts, on the bubble's clock. Its ledger is checked by
// check.
type fakeStore struct {
	claimFault  func(partition.ClaimRequest) fault
	settleFault func(*partition.Lease) fault
	released    func(*partition.Release) // sees every release
	dueFault    func() error
	accepted    func(partition string, lo, hi int64) int // what the sink took of [lo, hi); nil = unknown
	roundTrip   time.Duration
	zones       int             // 0 = 1
	stall       func()          // after the clock was read
	spoil       int             // leases to come that cover more than they hold
	paused      map[string]bool // partitions; "" = all

	mu      sync.Mutex
	shift   int64 // ms between the bubble's clock and the store's
	tokens  int
	spaces  map[string]*fakeSpace
	calls   fakeCalls
	offsets []int // of Due
	rung    chan struct{}
}

type fakeCalls struct{ due, claim, settle, releaseUnknown, wait int }

type fakeSpace struct {
	ns         *partition.Namespace
	partitions map[string]*fakePartition
	mark       int64 // high-water mark of sequences
	ledger     partition.Ledger
	letters    [][]byte
}

type fakePartition struct {
	entries    []partition.Entry
	head, tail int64
	due        int64

	held      bool // a range is held
	from, to  int64
	committed int64 // the end of the last commit
	hasFrom   bool
	cuts      []int64
	attempt   int
	token     string
	done      map[int64]bool // of the held range: what releases said that the sink accepted
}

var _ Store = (*fakeStore)(nil)

func newFakeStore(spaces ...*partition.Namespace) *fakeStore {
	// The bubble begins in 2000; entries' times have 13 digits only from 2001.
	s := &fakeStore{shift: 800_000_000_000, spaces: map[string]*fakeSpace{}, rung: make(chan struct{})}
	for _, ns := range spaces {
		s.spaces[ns.Name] = &fakeSpace{ns: ns, partitions: map[string]*fakePartition{}}
	}
	return s
}

// space is a namespace with the default policy, as changed.
func space(name string, change ...func(*partition.Policy)) *partition.Namespace {
	p := partition.DefaultPolicy()
	for _, f := range change {
		f(&p)
	}
	return &partition.Namespace{Name: name, Policy: p}
}

func (s *fakeStore) now() int64 { return time.Now().UnixMilli() + s.shift }

// Zones is one: this store is no cluster.
func (s *fakeStore) Zones() int { return max(s.zones, 1) }

func (s *fakeStore) NowOf(*partition.Namespace) (int64, bool) {
	ms := s.now()
	if s.stall != nil {
		s.stall()
	}
	return ms, true
}

func shardOf(ns *partition.Namespace, name string) int { return len(name) % ns.Policy.Shards }

// produce appends n entries of the given age; payloads count up.
func (s *fakeStore) produce(ns *partition.Namespace, name string, n int, age time.Duration) {
	payloads := make([]string, n)
	s.produceAll(ns, name, age, payloads...)
}

func (s *fakeStore) produceAll(ns *partition.Namespace, name string, age time.Duration, payloads ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.spaces[ns.Name]
	p := sp.partitions[name]
	now := s.now()
	if p == nil {
		head := max(now*1000, sp.mark)
		p = &fakePartition{head: head, tail: head, done: map[int64]bool{}, due: now + ns.Policy.Linger.Milliseconds()}
		sp.partitions[name] = p
	}
	before := len(p.entries)
	for _, payload := range payloads {
		if payload == "" {
			payload = strconv.FormatInt(p.tail, 10)
		}
		p.entries = append(p.entries, partition.Entry{Seq: p.tail, Occurred: now - age.Milliseconds(), Payload: []byte(payload)})
		p.tail++
	}
	sp.ledger.Accepted += int64(len(payloads))
	if over := len(p.entries) - ns.Policy.Capacity; over > 0 {
		done := p.pop(int64(over))
		sp.ledger.Delivered += done
		sp.ledger.Evicted += int64(over) - done
	}
	if full := min(ns.Policy.Batch, ns.Policy.Capacity); !p.held && before < full && len(p.entries) >= full {
		p.due = now
	}
	close(s.rung)
	s.rung = make(chan struct{})
}

// remove takes n entries away, as something other than Spillway does: a TTL, an
// eviction, a DEL.
func (s *fakeStore) remove(ns *partition.Namespace, name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.spaces[ns.Name]
	p := sp.partitions[name]
	done := p.pop(int64(n))
	sp.ledger.Delivered += done
	sp.ledger.Lost += int64(n) - done
	if p.hasFrom {
		p.from = max(p.from, p.head)
	}
	if p.head == p.tail {
		sp.die(name)
	}
}

func (s *fakeStore) Due(ctx context.Context, ns *partition.Namespace, shard, offset, limit int) (list []partition.DuePartition, total int, err error) {
	s.trip(ctx)
	if ctx.Err() != nil {
		return nil, 0, partition.ErrUnknown
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.due++
	s.offsets = append(s.offsets, offset)
	if s.dueFault != nil {
		if err := s.dueFault(); err != nil {
			return nil, 0, err
		}
	}
	now := s.now()
	next := partition.DuePartition{Due: math.MaxInt64} // the first that is not due; the others are left out
	for name, p := range s.spaces[ns.Name].partitions {
		one := partition.DuePartition{Partition: name, Due: p.due}
		switch {
		case shardOf(ns, name) != shard:
		case p.due <= now:
			list = append(list, one)
		case p.due < next.Due:
			next = one
		}
	}
	total = len(list)
	slices.SortFunc(list, func(a, b partition.DuePartition) int {
		if a.Due != b.Due {
			return int(a.Due - b.Due)
		}
		return strings.Compare(a.Partition, b.Partition)
	})
	if next.Partition != "" {
		list = append(list, next)
	}
	list = list[min(offset, len(list)):]
	return list[:min(limit, len(list))], total, nil
}

// trip is the time on the wire.
func (s *fakeStore) trip(context.Context) {
	if s.roundTrip > 0 {
		clocktest.Take(s.roundTrip)
	}
}

func (s *fakeStore) WaitDue(ctx context.Context, ns *partition.Namespace, shard int, due int64, limit time.Duration) {
	s.mu.Lock()
	s.calls.wait++
	rung, d := s.rung, time.Duration(due-s.now())*time.Millisecond
	s.mu.Unlock()
	if d <= 0 {
		return
	}
	t := time.NewTimer(min(d, limit))
	defer t.Stop()
	select {
	case <-t.C:
	case <-rung:
	case <-ctx.Done():
	}
}

func (s *fakeStore) Claim(ctx context.Context, requests []partition.ClaimRequest, lease time.Duration) []partition.ClaimResult {
	until := time.Now().Add(lease)
	s.trip(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.claim++
	claims := make([]partition.ClaimResult, len(requests))
	for i, request := range requests {
		c := &claims[i]
		c.ClaimRequest = request
		var f fault
		if s.claimFault != nil {
			f = s.claimFault(request)
		}
		if f.err == nil && ctx.Err() != nil {
			f = lostReply
		}
		if f.err == nil || f.ran {
			s.claim(c, until, lease)
		}
		if f.err != nil {
			c.Lease, c.Expired, c.Paused, c.Err = nil, 0, 0, f.err
		}
	}
	return claims
}

func (s *fakeStore) Settle(ctx context.Context, commits []*partition.Commit, releases []*partition.Release) {
	s.trip(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.settle++
	seen := map[*partition.Lease]bool{}
	one := func(lease *partition.Lease, apply func() error) (err error) {
		if seen[lease] {
			panic("a lease appears twice in one Settle")
		}
		seen[lease] = true
		var f fault
		if s.settleFault != nil {
			f = s.settleFault(lease)
		}
		if f.err == nil && ctx.Err() != nil {
			f = lostReply
		}
		if f.err == nil || f.ran {
			err = apply()
		}
		if f.err != nil {
			err = f.err
		}
		return err
	}
	for _, c := range commits {
		c.Err = one(c.Lease, func() error { return s.commit(c) })
	}
	for _, r := range releases {
		if s.released != nil {
			s.released(r)
		}
		r.Err = one(r.Lease, func() error { return s.release(r) })
	}
}

func (s *fakeStore) ReleaseUnknown(ctx context.Context, claims []partition.ClaimResult) error {
	s.trip(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.releaseUnknown++
	if ctx.Err() != nil {
		return partition.ErrUnknown
	}
	for _, c := range claims {
		if p := s.spaces[c.Namespace.Name].partitions[c.Partition]; p != nil && p.token != "" {
			p.token, p.hasFrom, p.attempt = "", false, 0
			p.due = s.now()
		}
	}
	return nil
}

// fence takes a partition's lease away, as a drainer does that claimed it after
// its deadline.
func (s *fakeStore) fence(ns *partition.Namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spaces[ns.Name].partitions[name].token = "another"
}

func (s *fakeStore) ledger(ns *partition.Namespace) partition.Ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.spaces[ns.Name]
	l := sp.ledger
	for _, p := range sp.partitions {
		l.Buffered += int64(len(p.entries))
	}
	return l
}

// pause pauses a partition, or all of them where name is "".
func (s *fakeStore) pause(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused == nil {
		s.paused = map[string]bool{}
	}
	s.paused[name] = true
}

func (s *fakeStore) resume(ns *partition.Namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.paused, name)
	if p := s.spaces[ns.Name].partitions[name]; p != nil && p.token == "" {
		p.due = min(p.due, s.now())
	}
}

// set changes the store's faults while it runs.
func (s *fakeStore) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *fakeStore) counts() fakeCalls {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *fakeStore) dueOffsets() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.offsets)
}

func (s *fakeStore) letters(ns *partition.Namespace) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.spaces[ns.Name].letters)
}

func (s *fakeStore) leased() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sp := range s.spaces {
		for name, p := range sp.partitions {
			if p.token != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// check holds every namespace to the law.
func (s *fakeStore) check(t testing.TB) {
	t.Helper()
	for name, sp := range s.spaces {
		l := s.ledger(sp.ns)
		if sum := l.Delivered + l.Evicted + l.Expired + l.Dead + l.Lost + l.Buffered; sum != l.Accepted {
			t.Errorf("ledger of %s does not add up: accepted %d, the classes %d: %+v", name, l.Accepted, sum, l)
		}
		for partition, p := range sp.partitions {
			if p.tail-p.head != int64(len(p.entries)) || len(p.entries) == 0 {
				t.Errorf("partition %s: %d entries in [%d, %d)", partition, len(p.entries), p.head, p.tail)
			}
		}
	}
}

func (s *fakeStore) depth(ns *partition.Namespace, name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.spaces[ns.Name].partitions[name]; p != nil {
		return len(p.entries)
	}
	return 0
}
