package backend

import (
	"fmt"
	"testing"
)

// Masters that have equally many slots have equally many shards, whatever the namespace is called.
func TestShardsLieEvenlyOnMasters(t *testing.T) {
	t.Parallel()
	for _, masters := range []int{1, 2, 3, 4, 6, 12} {
		for i := range 50 {
			namespace, shards, on := fmt.Sprint("kart", i), 4*masters, map[int]int{}
			for shard := range shards {
				on[Slot(ShardPrefix("sw", namespace, shard, shards))*masters/Slots]++
			}
			for m := range masters {
				if on[m] < 3 || on[m] > 5 { // where masters meet, rounding may move one
					t.Errorf("%s: master %d of %d has %d of %d shards", namespace, m, masters, on[m], shards)
				}
			}
		}
	}
}

// It is part of the stored format.
func TestShardPrefixesNeverChange(t *testing.T) {
	t.Parallel()
	for i, want := range []string{"sw:{kart.0}:", "sw:{kart.1-", "sw:{kart.2-"} {
		got := ShardPrefix("sw", "kart", i, 3)
		if len(got) < len(want) || got[:len(want)] != want {
			t.Errorf("shard %d: %s", i, got)
		}
		if slot := Slot(got); slot != (Slot("{kart.0}")+i*Slots/3)%Slots {
			t.Errorf("shard %d: slot %d", i, slot)
		}
	}
	if ShardPrefix("sw", "kart", 0, 1) != ShardPrefix("sw", "kart", 0, 9) {
		t.Error("shard 0 depends on how many there are")
	}
}

func BenchmarkShardPrefix(b *testing.B) {
	for i := range b.N {
		_ = ShardPrefix("sw", "kart", 1+i%11, 12)
	}
}
