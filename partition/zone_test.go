package partition

import (
	"testing"

	"github.com/spillway-io/spillway/partition/backend"
)

// A slot's zone is its twelfth of the cluster,
// numbered without gaps where a part has no shard.
func TestAZoneIsAPartOfTheClustersSlots(t *testing.T) {
	t.Parallel()
	policy := DefaultPolicy()
	policy.Shards = 40
	all := map[string]*Namespace{}
	for _, name := range []string{"a", "b"} {
		ns, err := newNamespace("sw", name, policy)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = ns
		for _, sh := range ns.home.Shards {
			sh.Zone = backend.Slot(sh.Prefix) * MaxZones / backend.Slots
		}
	}
	if n := setZones(all); n != MaxZones {
		t.Fatalf("%d zones of eighty shards, want %d", n, MaxZones)
	}
	for _, ns := range all {
		for i := range ns.shards {
			if got, want := ns.shards[i].Zone, backend.Slot(ns.shards[i].ready)*MaxZones/backend.Slots; got != want {
				t.Errorf("%s: zone %d, want %d", ns.shards[i].ready, got, want)
			}
		}
	}
	few, err := newNamespace("sw", "few", DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	few.home.Shards[0].Zone = 7
	if n := setZones(map[string]*Namespace{"few": few}); n != 1 || few.ZoneOf("kart") != 0 {
		t.Errorf("one shard: %d zones, a partition in %d", n, few.ZoneOf("kart"))
	}
	if got := (&Namespace{Name: "bare"}).ZoneOf("kart"); got != 0 {
		t.Errorf("a namespace without shards: zone %d", got)
	}
}
