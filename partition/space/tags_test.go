package space

import (
	"fmt"
	"testing"

	"github.com/spillway-io/spillway/partition/backend"
)

// usual are the slots of a cluster of n masters, as redis-cli deals them.
func usual(n int) (masters [][]slotRange) {
	for i := range n {
		masters = append(masters, []slotRange{{i * backend.Slots / n, (i+1)*backend.Slots/n - 1}})
	}
	return masters
}

func TestShardsLieEvenlyOnTheMasters(t *testing.T) {
	t.Parallel()
	scattered := [][]slotRange{{{0, 99}, {300, 5000}, {16000, 16383}}, {{100, 299}, {5001, 9000}}, {{9001, 15999}}}
	for _, c := range []struct {
		masters [][]slotRange
		shards  int
	}{{usual(3), 12}, {usual(3), 1}, {usual(3), 7}, {usual(5), 48}, {usual(48), 96}, {scattered, 12}, {scattered, 100}} {
		t.Run(fmt.Sprint(c.shards, " on ", len(c.masters)), func(t *testing.T) {
			t.Parallel()
			l := newLayout("kart", 1_764_158_651, c.shards, c.masters)
			on, slots := make([]int, len(c.masters)), map[int]bool{}
			for _, tag := range l.Tags {
				slot := backend.Slot("{kart." + tag + "}")
				if slots[slot] {
					t.Errorf("two shards are in slot %d", slot)
				}
				slots[slot] = true
				for i, master := range c.masters {
					for _, r := range master {
						if slot >= r[0] && slot <= r[1] {
							on[i]++
						}
					}
				}
			}
			for i, n := range on {
				if n < c.shards/len(c.masters) || n > (c.shards+len(c.masters)-1)/len(c.masters) {
					t.Errorf("master %d has %d of %d shards: %v", i, n, c.shards, on)
				}
			}
		})
	}
}

func TestWithoutAClusterShardsLieEvenlyOverAllSlots(t *testing.T) {
	t.Parallel()
	for i, slot := range spreadSlots(nil, 4) {
		if want := (2*i + 1) * backend.Slots / 8; slot != want {
			t.Errorf("shard %d: got slot %d, want %d", i, slot, want)
		}
	}
}

func TestEverySlotHasATag(t *testing.T) {
	t.Parallel()
	for _, slot := range []int{0, 1, 8191, 16382, 16383} {
		if end := tagEnd("kart", 7, 3, slot); backend.Slot("{kart."+end+"}") != slot || len(end) > len("7.3-zzzz") {
			t.Errorf("slot %d: %q", slot, end)
		}
	}
}
