package partition_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// While a slot migrates, a call with a partition that is new is rejected and sent
// again group by group. A group is not where a later one of its partition was stored:
// the order of a partition matters more than a retry.
func TestASplitCallDoesNotReorderAPartition(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 2)
	s := openHasty(t, servers.URL(), "sw", nil) // it gives a move up that does not end
	ctx := t.Context()
	redistest.Until(t, 10*time.Second, "the store takes entries", func() bool {
		_, _ = s.Check(ctx)
		return s.produce("p", "0") == nil && s.produce("q", "0") == nil
	})
	from := servers.MasterOf("sw:{default.0}:ready")
	servers.BeginMove(t, "sw:{default.0}:ready", from, 1-from)
	group := func(name, label string, n int) *partition.Group {
		g := &partition.Group{Namespace: s.ns, Partition: name}
		for i := range n {
			g.Entries = append(g.Entries, entry(fmt.Sprint(label, i)))
		}
		return g
	}
	first, beside, second := group("p", "a", 1000), group("q", "b", 10), group("p", "c", 1000)
	s.Produce(ctx, []*partition.Group{group("new", "n", 10), first, beside, second})
	if beside.Err != nil {
		t.Errorf("a partition that is there: %v", beside.Err)
	}
	var order []string
	for _, e := range servers.Masters[from].Client().LRange(ctx, "sw:{default.0}:q:p", 0, -1).Val() {
		if label := e[14:15]; len(order) == 0 || order[len(order)-1] != label {
			order = append(order, label)
		}
	}
	want := []string{"0"}
	for label, g := range map[string]*partition.Group{"a": first, "c": second} {
		if g.Err == nil {
			want = append(want, label)
		} else if !errors.Is(g.Err, partition.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", label, g.Err)
		}
	}
	slices.Sort(want)
	if got := strings.Join(order, " "); got != strings.Join(want, " ") {
		t.Errorf("order %q, want what was acknowledged in its order: %q", got, want)
	}
}

// What has to wait for its keys waits, and so do operators.
func TestEntriesAndAPurgeWaitForASlotThatMoves(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 2)
	s := open(t, servers.URL(), nil)
	usable(t, s.Store)
	from := servers.MasterOf("sw:{default.0}:ready")
	for what, act := range map[string]func() error{
		"a purge": func() error {
			_, err := s.Purge(t.Context(), s.ns, partition.PurgeRequest{Partition: "purged"})
			return err
		},
		"entries": func() error { return s.produce("new", "0") },
	} {
		if err := s.produce("old", "0"); err != nil {
			t.Fatal(err)
		}
		servers.BeginMove(t, "sw:{default.0}:ready", from, 1-from)
		ended := make(chan error, 1)
		go func() { ended <- act() }()
		servers.UntilRejected(t, from)
		servers.MoveSlot(t, "sw:{default.0}:ready", from, 1-from)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", what, err)
		}
		from = 1 - from
	}
}

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
