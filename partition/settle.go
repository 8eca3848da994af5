package partition

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/backend"
)

// Commit says what became of the entries [Lo, Hi) of a lease. A commit that
// reaches the lease's To ends the lease.
type Commit struct {
	Lease                    *Lease
	Lo, Hi                   int64    // sequences, Lo < Hi
	Delivered, Expired, Dead int      // their sum is Hi-Lo
	DeadLetters              [][]byte // one record per Dead; a JSON object on a line gets the time of the commit as "dead_at"
	stamped                  [][]byte // DeadLetters with that time

	// Err is the result: nil, ErrGone when another holder has the lease,
	// *RangeError when the store's range does not begin at Lo, or one that Is one of
	// the store's errors.
	Err error
	// AlreadyApplied is a result, too: the range began at Hi or later, and the
	// store wrote nothing. Either an earlier commit of the same range ran with an
	// unknown outcome, or something other than Spillway removed the entries from
	// Redis; then they are lost.
	AlreadyApplied bool
}

// Release gives a lease back: what no commit has settled comes due after Delay.
type Release struct {
	Lease   *Lease
	Delay   time.Duration
	Attempt int // presentations to remember
	// Done[i]: the sink accepted Lease.Entries[i]; the store keeps that for the next
	// presentation. nil: none.
	Done []bool

	// Err is the result: nil, ErrGone when another holder has the lease, or one
	// that Is one of the store's errors.
	Err error
}

// RangeError rejects a commit that does not start where the store's range starts:
// something other than Spillway removed entries of the range from Redis, or an
// earlier commit ran with an unknown outcome. Commit [From, Hi) instead.
type RangeError struct{ From int64 }

func (e *RangeError) Error() string { return "commit starts at another sequence than the range" }

// Commit runs all commits, those of a shard by one script call for up to 64 of
// them. A lease appears in only one of them. Repeating a commit with an unknown
// outcome is safe: where the range ended, it is ErrGone, and counted once.
func (s *Store) Commit(ctx context.Context, commits []*Commit) { s.Settle(ctx, commits, nil) }

// Release runs all releases, those of a shard by one script call for up to 64 of
// them. Repeating a release with an unknown outcome is safe.
func (s *Store) Release(ctx context.Context, releases []*Release) { s.Settle(ctx, nil, releases) }

// Settle is Commit and Release in one round trip. A lease appears only once, and all are of one
// store, such as those of one zone.
func (verbs) Settle(ctx context.Context, commits []*Commit, releases []*Release) {
	var s *Store
	switch {
	case len(commits) > 0:
		s = commits[0].Lease.Namespace.store
	case len(releases) > 0:
		s = releases[0].Lease.Namespace.store
	default:
		return
	}
	all := make([]settlement, 0, len(commits)+len(releases))
	for _, c := range commits {
		if len(c.DeadLetters) > 0 {
			c.stamp(s.backend.Now())
		}
		all = append(all, c)
	}
	for _, r := range releases {
		all = append(all, r)
	}
	packs := backend.RunPacks(ctx, backend.Join(all, joins), fillSettlements,
		func(calls []*backend.Call) { s.backend.Run(ctx, s.backend.Out, calls) }, nil)
	for _, pack := range packs {
		for _, t := range pack.Items {
			err := pack.Err
			if err == nil {
				if err = pack.Rejected(); err == nil {
					err = t.read(pack.Call)
				}
				if errors.Is(err, ErrBroken) || errors.Is(err, ErrUnavailable) {
					s.backend.CountError(err)
				}
			}
			t.ended(err)
		}
	}
}

// A settlement is a *Commit or a *Release.
type settlement interface {
	lease() *Lease
	letterBytes() int
	read(*backend.Call) error // the answer of its script
	ended(error)
}

func (c *Commit) lease() *Lease { return c.Lease }

func (c *Commit) letterBytes() (n int) {
	for _, letter := range c.DeadLetters {
		n += len(letter)
	}
	return n
}

// stamp adds the store's time in ms to the dead letters, once it is known.
func (c *Commit) stamp(now int64, known bool) {
	c.stamped = slices.Clone(c.DeadLetters)
	for i := range c.stamped {
		if known {
			c.stamped[i] = stampLetter(c.stamped[i], now)
		}
	}
}

func (c *Commit) read(a *backend.Call) error {
	c.AlreadyApplied = false
	switch code := a.Rest.Int(); {
	case a.Rest.Broken:
		return a.Misread()
	case code == 0:
		return ErrGone
	case code == 2:
		c.AlreadyApplied = true
	case code == 3:
		if from := a.Rest.Int(); !a.Rest.Broken {
			return &RangeError{from}
		}
		return a.Misread()
	}
	return nil
}

func (c *Commit) ended(err error) {
	if c.Err = err; err != nil {
		c.AlreadyApplied = false
	}
}

func (r *Release) lease() *Lease { return r.Lease }

func (r *Release) letterBytes() int { return 0 }

func (r *Release) read(a *backend.Call) error {
	switch code := a.Rest.Int(); {
	case a.Rest.Broken:
		return a.Misread()
	case code == 0:
		return ErrGone
	}
	return nil
}

func (r *Release) ended(err error) { r.Err = err }

func (l *Lease) shard() *shard {
	if l.at == nil {
		return l.Namespace.shardOf(l.Partition)
	}
	return l.at
}

// joins reports whether a settlement goes into the call of others: those of a kind and a shard share one until
// it is full. A partition that comes twice, because one of the two has lost its lease, is in two calls.
func joins(others []settlement, t settlement) bool {
	first := others[0]
	if isRelease(first) != isRelease(t) || first.lease().shard() != t.lease().shard() || len(others) >= maxCallLeases {
		return false
	}
	bytes := t.letterBytes()
	for _, other := range others {
		if other.lease().Partition == t.lease().Partition {
			return false
		}
		bytes += other.letterBytes()
	}
	return bytes <= maxLetterBytes
}

func isRelease(t settlement) bool {
	_, release := t.(*Release)
	return release
}

func fillSettlements(c *backend.Call, items []settlement) {
	if isRelease(items[0]) {
		fillReleases(c, items)
	} else {
		fillCommits(c, items)
	}
}

func fillCommits(c *backend.Call, items []settlement) {
	ns, sh := items[0].lease().Namespace, items[0].lease().shard()
	keys, letters := 2+2*len(items), 0
	for _, t := range items {
		letters += len(t.(*Commit).DeadLetters)
	}
	if letters > 0 {
		keys++
	}
	c.Begin(lua.Commit, sh.Breaker, keys)
	c.Args = append(c.Args, sh.ready, sh.Ledger)
	for _, t := range items {
		c.Args = append(c.Args, sh.list(t.lease().Partition), sh.meta(t.lease().Partition))
	}
	if letters > 0 {
		// Declared only where it is needed: while a cluster moves the slot, a key that is
		// not there makes it reject the call.
		c.Args = append(c.Args, sh.dead)
	}
	c.Args = append(c.Args, ns.full, ns.linger(), ns.Policy.MaxDead, ns.Policy.MaxDeadBytes)
	for _, t := range items {
		t := t.(*Commit)
		c.Args = append(
			c.Args,
			t.Lease.Partition,
			t.Lease.Token,
			t.Lo,
			t.Hi,
			t.Expired,
			t.Dead,
		)
		for _, letter := range t.stamped {
			c.Args = append(c.Args, letter)
		}
	}
}

func fillReleases(c *backend.Call, items []settlement) {
	sh := items[0].lease().shard()
	c.Begin(lua.Release, sh.Breaker, 1+len(items))
	c.Args = append(c.Args, sh.ready)
	for _, t := range items {
		c.Args = append(c.Args, sh.meta(t.lease().Partition))
	}
	for _, t := range items {
		t := t.(*Release)
		c.Args = append(
			c.Args,
			t.Lease.Partition,
			t.Lease.Token,
			max(0, t.Delay.Milliseconds()),
			t.Attempt,
			writeDone(t.Done),
		)
	}
}

// notPresented takes the presentation that a claim counted back.
const notPresented = -1

// ReleaseUnknown releases the claims with an unknown outcome (ErrUnknown) that did
// run, so that their partitions need not wait for the lease to lapse. It returns
// an error when the store does not answer; then the leases lapse.
func (v verbs) ReleaseUnknown(ctx context.Context, claims []ClaimResult) error {
	var releases []*Release
	for _, c := range claims {
		if c.token != "" && errors.Is(c.Err, ErrUnknown) {
			lease := &Lease{Namespace: c.Namespace, Partition: c.Partition, Token: c.token, at: c.at}
			releases = append(releases, &Release{Lease: lease, Attempt: notPresented})
		}
	}
	v.Settle(ctx, nil, releases)
	for _, r := range releases {
		if r.Err != nil && !errors.Is(r.Err, ErrGone) {
			return r.Err
		}
	}
	return nil
}
