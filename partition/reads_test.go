package partition_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// Any number of reads that never get a reply leaves connections for produce and drain,
// for readiness checks, and for operators who read the ledger.
func TestReadsKeepNobodyElseFromAConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	line := redistest.StartFaultLine(t, server.Addr)
	s := open(t, line.URL, func(p *partition.Policy) { p.Linger = 0 })
	if err := s.produce("kart", "x"); err != nil {
		t.Fatal(err)
	}
	line.SetFor(lua.Stats.SHA, func() (redistest.Fault, float64) { return redistest.StallsRequest, 0 })

	ctx, stop := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stop()
	var rejected atomic.Int64
	for range 400 {
		reading.Go(func() {
			for ctx.Err() == nil {
				_, err := s.Stats(ctx, s.ns, "kart")
				if errors.Is(err, partition.ErrUnavailable) && ctx.Err() == nil {
					rejected.Add(1)
				}
			}
		})
	}
	redistest.Until(t, repairTimeout, "reads are rejected", func() bool { return rejected.Load() > 400 })

	for range 20 {
		if _, err := s.Check(t.Context()); err != nil {
			t.Fatalf("check: %v", err)
		}
		if err := s.produce("kart", "y"); err != nil {
			t.Fatalf("produce: %v", err)
		}
		if _, _, err := s.Due(t.Context(), s.ns, 0, 0, 1); err != nil {
			t.Fatalf("due: %v", err)
		}
		claim := s.Claim(t.Context(), []partition.ClaimRequest{{Namespace: s.ns, Partition: "kart", MaxBatches: 1}}, time.Minute)[0]
		if claim.Lease == nil {
			t.Fatalf("claim: %v", claim.Err)
		}
		commit := &partition.Commit{Lease: claim.Lease, Lo: claim.Lease.From, Hi: claim.Lease.To}
		commit.Delivered = int(commit.Hi - commit.Lo)
		if s.Commit(t.Context(), []*partition.Commit{commit}); commit.Err != nil {
			t.Fatalf("settle: %v", commit.Err)
		}
		if residual, err := s.Audit(t.Context(), s.ns); err != nil || residual != 0 {
			t.Fatalf("audit: %d %v", residual, err)
		}
	}
}

func TestOverviewTellsTheSizeOfTheDeadLettersThatAreKept(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL(), nil)
	c := server.Client()
	c.RPush(t.Context(), "sw:{default.0}:dead", "letter")
	c.HSet(t.Context(), "sw:{default.0}:ledger", "dead_bytes", 6)
	if o, err := s.Overview(t.Context(), s.ns); err != nil || o.DeadBytes != 6 || o.DeadLetters != 1 {
		t.Errorf("got %d letters of %d bytes (%v), want 1 of 6", o.DeadLetters, o.DeadBytes, err)
	}
	c.Del(t.Context(), "sw:{default.0}:dead") // as deploy/OPERATING.md tells operators
	if o, err := s.Overview(t.Context(), s.ns); err != nil || o.DeadBytes != 0 {
		t.Errorf("got %d bytes (%v) of letters that are gone", o.DeadBytes, err)
	}
}
