package partition_test

import (
	"context"
	"errors"
	"math"
	"net"
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
	s := openHasty(t, line.URL, "sw", func(p *partition.Policy) { p.Linger = 0 })
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
			tick := time.NewTicker(20 * time.Millisecond) // those that are rejected ask again
			defer tick.Stop()
			for ctx.Err() == nil {
				_, err := s.Stats(ctx, s.ns, "kart")
				if errors.Is(err, partition.ErrUnavailable) && ctx.Err() == nil {
					rejected.Add(1)
					<-tick.C
				}
			}
		})
	}
	redistest.Until(t, repairTimeout, "reads are rejected", func() bool { return rejected.Load() > 400 })

	// Reads without an answer can make the shard seem unreachable, and a machine that stands still
	// lets no connection be made in time: both pass. A lack of connections is another error.
	do := func(what string, call func() error) {
		t.Helper()
		var err error
		redistest.Until(t, patience, what, func() bool {
			err = call()
			var op *net.OpError
			return !errors.Is(err, partition.ErrUnreachable) && !(errors.As(err, &op) && op.Op == "dial")
		})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for range seeds(20, 5) {
		do("check", func() error { _, err := s.Check(t.Context()); return err })
		do("produce", func() error { return s.produce("kart", "y") })
		do("due", func() error { _, _, err := s.Due(t.Context(), s.ns, 0, 0, 1); return err })
		var claim partition.ClaimResult
		do("claim", func() error {
			claim = s.Claim(t.Context(), []partition.ClaimRequest{{Namespace: s.ns, Partition: "kart", MaxBatches: 1}}, time.Minute)[0]
			return claim.Err
		})
		if claim.Lease == nil {
			t.Fatal("claim: no lease")
		}
		commit := &partition.Commit{Lease: claim.Lease, Lo: claim.Lease.From, Hi: claim.Lease.To}
		commit.Delivered = int(commit.Hi - commit.Lo)
		do("settle", func() error { s.Commit(t.Context(), []*partition.Commit{commit}); return commit.Err })
		do("audit", func() error {
			residual, err := s.Audit(t.Context(), s.ns)
			if residual != 0 && err == nil {
				t.Fatalf("audit: %d", residual)
			}
			return err
		})
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

func TestSizeReadsNumbersWithUnits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]partition.Size{
		"0": 0, "7": 7, "7B": 7, "1KB": 1000, "1KiB": 1024, "64MiB": 64 << 20, "100MB": 100_000_000, "2GiB": 2 << 30, "3gb": 3_000_000_000,
		"9223372036854775807": math.MaxInt64,
	} {
		var got partition.Size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
		var again partition.Size
		if err := again.UnmarshalText([]byte(got.String())); err != nil || again != got {
			t.Errorf("%s: its own spelling %s reads as %d, %v", text, got, again, err)
		}
	}
}

func TestSizeRejectsUnknownUnitsAndNumbersOutOfRange(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "B", "5M", "5k", "-1", "+1", "-1MB", "1.5GB", "1 MB", "MB", "1TB",
		"9223372036854775808", "9223372036854775807KB", "10000000000GB", "9999999999GiB",
	} {
		var s partition.Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: got %d, want an error", text, s)
		}
	}
}
