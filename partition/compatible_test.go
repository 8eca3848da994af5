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

// Of first users that begin at the same moment one fixes the number of shards. Those that want another
// one are rejected; one that leaves it to the store has the same.
func TestOfFirstUsersWithDifferentShardsOneFixesTheNumber(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for round := range 50 {
		prefix := fmt.Sprint("r", round)
		var wg sync.WaitGroup
		wanted := []int{1, 2, partition.AutoShards}
		stores, errs := make([]*site, len(wanted)), make([]error, len(wanted))
		for i, shards := range wanted {
			stores[i] = openPrefix(t, server.URL(), prefix, func(p *partition.Policy) { p.Shards = shards })
			wg.Go(func() { _, errs[i] = stores[i].Check(t.Context()) })
		}
		wg.Wait()
		recorded, err := server.Client().HGet(t.Context(), prefix+":{default.0}:ledger", "shards").Int()
		if err != nil {
			t.Fatal(err)
		}
		for i, shards := range wanted {
			fits := shards == recorded || shards == partition.AutoShards
			if fits != (errs[i] == nil) || !fits && !errors.Is(errs[i], partition.ErrIncompatible) {
				t.Errorf("round %d: %d are recorded, %d wanted: %v", round, recorded, shards, errs[i])
			}
			if fits && stores[i].ns.Shards() != recorded {
				t.Errorf("round %d: %d are recorded, one of %d has %d", round, recorded, shards, stores[i].ns.Shards())
			}
		}
	}
}
