package partition_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// A caller cannot tell a lost request from a lost reply: both are unknown. After the
// first nothing is stored, after the second everything, once.
func TestALostRequestIsUnknownAndNotStored(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	line := redistest.StartFaultLine(t, server.Addr)
	s := open(t, line.URL, nil)
	usable(t, s.Store)
	want := int64(0)
	for _, row := range []struct {
		fault  redistest.Fault
		stored int64
		is     error
	}{
		{redistest.LosesRequest, 0, partition.ErrUnknown}, {redistest.StallsRequest, 1, partition.ErrUnknown}, {redistest.LosesReply, 1, partition.ErrUnknown},
		{redistest.StallsReply, 1, partition.ErrUnknown}, {redistest.SlicesReply, 1, nil}, {redistest.Passes, 1, nil},
	} {
		once := true
		line.Set(func() (redistest.Fault, float64) {
			if once {
				once = false
				return row.fault, 0
			}
			return redistest.Passes, 0
		})
		if err := s.produceSoon("kart", "x"); !errors.Is(err, row.is) {
			t.Errorf("%s: got %v, want %v", row.fault, err, row.is)
		}
		want += row.stored
		c := server.Client()
		redistest.Until(t, 10*time.Second, fmt.Sprintf("%s: %d are stored", row.fault, want), func() bool {
			return c.LLen(t.Context(), "sw:{default.0}:q:kart").Val() == want
		})
	}
}

// Whatever a connection does, in any order: the ledger counts at least the acknowledged
// entries and at most those and the unknown ones, only committed entries count as
// delivered, and the lists hold what the ledger says.
func TestTheLedgerMatchesWhatClientsSawWhateverTheConnectionDoes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	line := redistest.StartFaultLine(t, server.Addr)
	direct := server.Client()
	runs := 0
	var total [redistest.Faults]int
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		seed := rapid.Uint64().Draw(rt, "seed")
		often := rapid.SampledFrom([]float64{0.05, 0.2, 0.5}).Draw(rt, "how often")
		capacity := rapid.SampledFrom([]int{3, 20, 1000}).Draw(rt, "capacity")
		shards := rapid.IntRange(1, 3).Draw(rt, "shards")
		prefix := fmt.Sprint("r", runs)
		line.Set(nil)
		s := openPrefix(t, line.URL, prefix, func(p *partition.Policy) {
			p.Capacity, p.Shards, p.Linger, p.Batch = capacity, shards, 0, 4
		})
		defer s.Close()
		if _, err := s.Check(t.Context()); err != nil {
			rt.Fatal(err)
		}
		faults := rand.New(rand.NewPCG(seed, 1))
		line.Set(func() (redistest.Fault, float64) {
			if faults.Float64() >= often {
				return redistest.Passes, 0
			}
			return redistest.Fault(1 + faults.IntN(int(redistest.Faults)-1)), faults.Float64()
		})
		acks, unknowns, delivered, maybe := useStore(rt, s, rand.New(rand.NewPCG(seed, 2)))
		line.Set(nil)
		for fault, n := range line.Seen() {
			total[fault] += n
		}

		// A stalled request may arrive yet, when its caller is gone: closing the
		// connections makes it so.
		_ = s.Close()
		s = openPrefix(t, server.URL(), prefix, func(p *partition.Policy) { p.Capacity, p.Shards, p.Linger, p.Batch = capacity, shards, 0, 4 })
		defer s.Close()
		redistest.Until(t, 10*time.Second, "the last connection is closed", func() bool {
			return strings.Count(direct.ClientList(t.Context()).Val(), "\n") <= 3
		})
		o, err := s.Overview(t.Context(), s.ns)
		if err != nil {
			rt.Fatal(err)
		}
		if a := o.Ledger.Accepted; a < acks || a > acks+unknowns {
			rt.Fatalf("accepted %d, acknowledged %d, unknown %d", a, acks, unknowns)
		}
		if d := o.Ledger.Delivered; d < delivered || d > delivered+maybe {
			rt.Fatalf("delivered %d, committed %d, unknown %d", d, delivered, maybe)
		}
		if o.Ledger.Lost != 0 || o.Ledger.Expired != 0 {
			rt.Fatalf("ledger %+v", o.Ledger)
		}
		if residual, err := s.Audit(t.Context(), s.ns); residual != 0 || err != nil {
			rt.Fatalf("audit: %d %v", residual, err)
		}
	})
	for fault, n := range total {
		if n == 0 {
			t.Errorf("%q never happened: this proves little", redistest.Fault(fault))
		}
	}
	t.Logf("%d runs, exchanges by fate: %v", runs, total)
}

// callTimeout is how long a caller waits for an exchange.
const callTimeout = 25 * time.Millisecond

// useStore uses a store for a while and returns what it was told, in entries.
func useStore(rt *rapid.T, s *site, roll *rand.Rand) (acks, unknowns, delivered, maybe int64) {
	for range 15 {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		if roll.IntN(3) > 0 {
			groups := make([]*partition.Group, 1+roll.IntN(5))
			for i := range groups {
				g := &partition.Group{Namespace: s.ns, Partition: fmt.Sprint("p", roll.IntN(4))}
				for range 1 + roll.IntN(6) {
					g.Entries = append(g.Entries, entry("x"))
				}
				if roll.IntN(4) == 0 {
					g.IdempotencyKey = fmt.Sprint(roll.Uint64())
				}
				groups[i] = g
			}
			s.Produce(ctx, groups)
			for _, g := range groups {
				switch n := int64(len(g.Entries)); {
				case g.Err == nil:
					acks += n
				case errors.Is(g.Err, partition.ErrUnknown):
					unknowns += n
				case !errors.Is(g.Err, partition.ErrUnavailable):
					rt.Fatalf("produce: %v", g.Err)
				}
			}
			cancel()
			continue
		}
		claim := s.Claim(ctx, []partition.ClaimRequest{{Namespace: s.ns, Partition: fmt.Sprint("p", roll.IntN(4)), MaxBatches: 2}}, time.Minute)[0]
		cancel()
		free, cancel := context.WithTimeout(context.Background(), callTimeout)
		_ = s.ReleaseUnknown(free, []partition.ClaimResult{claim})
		cancel()
		if l := claim.Lease; l != nil {
			done, ended := settleUnder(s, l)
			if done {
				delivered += l.To - l.From
			} else if !ended {
				maybe += l.To - l.From
			}
		}
	}
	return acks, unknowns, delivered, maybe
}

// settleUnder commits a lease and repeats that while its outcome is unknown: done once the
// store has said so, ended when it never ran.
func settleUnder(s *site, l *partition.Lease) (done, ended bool) {
	commit := &partition.Commit{Lease: l, Lo: l.From, Hi: l.To, Delivered: int(l.To - l.From)}
	unsure := false
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		s.Commit(ctx, []*partition.Commit{commit})
		cancel()
		switch {
		case commit.Err == nil:
			return true, true
		case errors.Is(commit.Err, partition.ErrGone):
			return unsure, true // an earlier commit ended it, with its reply lost
		case errors.Is(commit.Err, partition.ErrUnknown):
			unsure = true
		}
	}
	return false, !unsure
}
