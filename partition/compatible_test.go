package partition_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// Nobody would read entries that are stored under another number of shards than the
// store was first used with.
func TestAnIncompatibleStoreRejectsProduceDueAndClaim(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	first := open(t, server.URL(), nil)
	if err := first.produce("kart", "x"); err != nil {
		t.Fatal(err)
	}
	// It never called Check, as when the store did not answer at its start.
	c := server.Client()
	c.HSet(t.Context(), "sw:{default.0}:ledger", "format", 3)
	other := open(t, server.URL(), nil)
	if err := other.produce("kart", "y"); !errors.Is(err, partition.ErrIncompatible) {
		t.Errorf("produce: got %v, want ErrIncompatible", err)
	}
	if _, _, err := other.Due(t.Context(), other.ns, 0, 0, 1); !errors.Is(err, partition.ErrIncompatible) {
		t.Errorf("due: got %v, want ErrIncompatible", err)
	}
	claim := other.Claim(t.Context(), []partition.ClaimRequest{{Namespace: other.ns, Partition: "kart", MaxBatches: 1}}, time.Second)[0]
	if !errors.Is(claim.Err, partition.ErrIncompatible) {
		t.Errorf("claim: got %v, want ErrIncompatible", claim.Err)
	}

	// A newer program upgrades the format while this one runs.
	c.HSet(t.Context(), "sw:{default.0}:ledger", "format", 2)
	if _, err := first.Check(t.Context()); !errors.Is(err, partition.ErrIncompatible) {
		t.Fatalf("check: got %v, want ErrIncompatible", err)
	}
	if err := first.produce("kart", "z"); !errors.Is(err, partition.ErrIncompatible) {
		t.Errorf("produce after the upgrade: got %v, want ErrIncompatible", err)
	}
	c.HSet(t.Context(), "sw:{default.0}:ledger", "format", 1)
	if _, err := first.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.produce("kart", "z"); err != nil {
		t.Errorf("produce once it is compatible again: %v", err)
	}
	if o, err := first.Overview(t.Context(), first.ns); err != nil || o.Ledger.Accepted != 2 {
		t.Errorf("ledger %+v %v, want the 2 that were acknowledged", o.Ledger, err)
	}
}

func TestOfTwoFirstUsersWithDifferentShardsOneFollowsTheOther(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for round := range 50 {
		prefix := fmt.Sprint("r", round)
		var wg sync.WaitGroup
		var shards [2]int
		for i := range shards {
			s := openPrefix(t, server.URL(), prefix, func(p *partition.Policy) { p.Shards = i + 1 })
			wg.Go(func() {
				if _, err := s.Check(t.Context()); err != nil {
					_, err = s.Check(t.Context())
					if err != nil {
						t.Errorf("round %d: %v", round, err)
					}
				}
				open, _ := s.ns.OpenShards()
				shards[i] = len(open)
			})
		}
		wg.Wait()
		if shards[0] != shards[1] {
			t.Fatalf("round %d: %d and %d shards", round, shards[0], shards[1])
		}
	}
}
