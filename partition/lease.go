package partition

import (
	"context"
	"crypto/rand"
	"strconv"
	"time"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/backend"
)

// Bounds of one script call of claim and of commit, which together keep it below
// about 2 ms of Redis.
const (
	// claimBytes is what a call of claim reads at most. An entry counts for at least 512
	// bytes (the script's rule), so that is 2,048 small entries, or 16 full batches. It
	// also bounds a lease, which holds at least one entry.
	claimBytes = 1 << 20
	// maxCallLeases is how many partitions a call claims, commits or releases.
	maxCallLeases = 64
	// maxLetterBytes bounds the dead letters of one call; a commit that brings more is
	// a call of its own.
	maxLetterBytes = 1 << 20
)

// usualLease bounds the memory that a claim begins with, in bytes: a lease with few
// entries keeps all of it.
const usualLease = 64 << 10

// answerMemory is what the answer to a claim is read into, to begin with.
func (sh *shard) answerMemory() []byte { return make([]byte, 0, min(sh.claimed.Load(), usualLease)) }

// ClaimRequest asks for the oldest entries of one partition.
type ClaimRequest struct {
	Namespace  *Namespace
	Partition  string
	MaxBatches int // consecutive batches the lease may cover, 1 or more
}

// ClaimResult is what became of one ClaimRequest.
type ClaimResult struct {
	ClaimRequest

	Lease   *Lease // nil: nothing to do now, see Err
	Expired int    // stale entries that the claim dropped and counted as expired
	Paused  Paused // why there is no lease, where that is a pause
	// Err is nil also when the partition was not due, was empty, held stale entries
	// only or is paused. It Is ErrUnknown when the claim may have run: see ReleaseUnknown.
	Err error

	token string
	at    *shard
}

// Paused is what of a claim is paused.
type Paused int8

// What may be paused.
const (
	NotPaused Paused = iota
	// PartitionPaused: the claim has expired stale entries and put the partition off.
	PartitionPaused
	// NamespacePaused: the claim has changed nothing. Every claim of the shard is answered
	// so until the namespace is resumed.
	NamespacePaused
)

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
	Until time.Time // when the lease lapses, counted from before the claim was sent
	at    *shard    // where it was claimed; nil: that of the partition
}

// Claim runs all requests and returns one result for each, in the same order. The
// requests of a shard share one script call for up to 64 of them; more calls follow
// when their entries are too many for one. lease is how long the leases last. A
// partition appears in only one of the requests, and all are of one store.
func (verbs) Claim(ctx context.Context, requests []ClaimRequest,
	lease time.Duration) []ClaimResult {
	if len(requests) == 0 {
		return nil
	}
	s := requests[0].Namespace.store
	results := make([]ClaimResult, len(requests))
	claims := make([]*ClaimResult, len(requests))
	err := s.mayRun(ctx)
	for i, r := range requests {
		results[i].ClaimRequest, results[i].Err = r, err
		results[i].at = r.Namespace.shardOf(r.Partition)
		claims[i] = &results[i]
		if err != nil {
			s.backend.CountError(err)
		}
	}
	for err == nil && len(claims) > 0 {
		packs := backend.RunPacks(ctx, backend.Join(claims, joinsClaims), func(c *backend.Call,
			items []*ClaimResult) {
			fillClaims(c, items, lease)
		},
			func(calls []*backend.Call) { s.backend.Run(ctx, s.backend.Out, calls) }, nil)
		var left []*ClaimResult // the calls had no room for these; each call serves at least one
		for _, pack := range packs {
			left = append(left, s.claimed(pack, pack.Sent.Add(lease))...)
		}
		claims = left
	}
	return results
}

// joinsClaims reports whether a claim goes into the call of others: as many as fit, of one shard and one MaxBatches.
func joinsClaims(others []*ClaimResult, c *ClaimResult) bool {
	return others[0].MaxBatches == c.MaxBatches && others[0].at == c.at && len(others) < maxCallLeases
}

func fillClaims(c *backend.Call, claims []*ClaimResult, lease time.Duration) {
	ns, sh := claims[0].Namespace, claims[0].at
	c.Begin(lua.Claim, sh.Breaker, 2+2*len(claims))
	c.Args = append(c.Args, sh.ready, sh.Ledger)
	for _, claim := range claims {
		c.Args = append(c.Args, sh.list(claim.Partition), sh.meta(claim.Partition))
	}
	token := strconv.FormatInt(max(1, lease.Milliseconds()), 10) + "." + rand.Text()
	c.Args = append(c.Args, token, ns.Policy.Batch, claims[0].MaxBatches, claimBytes,
		ns.Policy.MaxAge.Milliseconds(), ns.full)
	for _, claim := range claims {
		claim.token = token
		c.Args = append(c.Args, claim.Partition)
	}
	c.Answer.Raw = sh.answerMemory()
}

// claimed reads the answers of a call, and returns the claims that it had no room for.
func (s *Store) claimed(pack backend.Pack[*ClaimResult], until time.Time) (left []*ClaimResult) {
	for _, c := range pack.Items {
		c.Lease = nil
		c.Expired = 0
		c.Paused = NotPaused
		c.Err = pack.Err
		if c.Err != nil {
			continue
		}
		if c.Err = pack.Rejected(); c.Err == nil {
			var served bool
			if served, c.Err = c.read(pack.Call, until); !served && c.Err == nil {
				left = append(left, c)
			}
			c.Namespace.recordExpired(c.Partition, c.Expired)
		}
		if c.Err != nil {
			s.backend.CountError(c.Err)
		}
	}
	if pack.Err == nil {
		pack.Items[0].at.claimed.Store(int64(len(pack.Answer.Raw)))
	}
	return left
}

// read reads the answer of one claim; it is false when the call had no room for it. The
// entries are not copied: leases keep the answer's memory, which is not used again.
func (c *ClaimResult) read(a *backend.Call, until time.Time) (served bool, err error) {
	at := &a.Rest
	switch code := at.Int(); {
	case at.Broken:
	case code == 0:
		at.Int() // when it is due
	case code == 1:
		c.Expired = int(at.Int())
	case code == 2, code == 4:
		c.Expired = int(at.Int())
		c.Lease = c.readLease(at, code == 4, until)
	case code == 3:
		return false, nil
	case code == 5:
		c.Expired, c.Paused = int(at.Int()), PartitionPaused
	case code == 6:
		c.Paused = NamespacePaused
	default:
		at.Broken = true
	}
	if at.Broken {
		c.Lease = nil
		return false, a.Misread()
	}
	return true, nil
}

// readLease reads a lease: several batches, each an array, or one whose entries are
// values of the reply itself.
func (c *ClaimResult) readLease(at *backend.Cursor, several bool, until time.Time) *Lease {
	from := at.Int()
	attempt := at.Int()
	done := at.Bulk()
	n := int(at.Int())
	if n < 1 || n > len(at.Rest) {
		at.Broken = true
		return nil
	}
	l := &Lease{
		Namespace: c.Namespace,
		Partition: c.Partition,
		Token:     c.token,
		Attempt:   int(attempt),
		From:      from,
		To:        from,
		Until:     until,
		at:        c.at,
	}
	if several {
		l.Cuts = make([]int64, 0, n)
		for range n {
			l.readBatch(at, at.Array(), n)
		}
	} else {
		l.readBatch(at, n, 1)
	}
	l.Done = readDone(done, len(l.Entries))
	return l
}

// readDone is what the sink has accepted of n entries; nil: none of them. The last
// byte of mask is for the last entry.
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

// readBatch appends the n entries of a batch. The first one makes room for so many
// batches of its length.
func (l *Lease) readBatch(at *backend.Cursor, n, batches int) {
	if l.Entries == nil {
		l.Entries = make([]Entry, 0, min(n*batches, len(at.Rest)/len("$0\r\n\r\n")))
	}
	for range n {
		raw := at.Bulk()
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
