package partition_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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
	s := open(t, servers.URL(), nil)
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
