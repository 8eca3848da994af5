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
// again group by group. A group whose partition is also in a later call of the same
// Produce is not: the order of a partition matters more than a retry.
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
	source, dest := servers.Masters[from].Client(), servers.Masters[1-from].Client()
	slot := source.ClusterKeySlot(ctx, "sw:{default.0}:ready").Val()
	if err := dest.Do(ctx, "cluster", "setslot", slot, "importing", source.ClusterMyID(ctx).Val()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := source.Do(ctx, "cluster", "setslot", slot, "migrating", dest.ClusterMyID(ctx).Val()).Err(); err != nil {
		t.Fatal(err)
	}
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
	for _, e := range source.LRange(ctx, "sw:{default.0}:q:p", 0, -1).Val() {
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
