package space

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestEveryShardHasOneFirstProcessAndEachAboutAsManyShards(t *testing.T) {
	t.Parallel()
	const shards, n = 1200, 10
	var processes []uint64
	for i := range n {
		processes = append(processes, hashOf(fmt.Sprint("process-", i)))
	}
	first := map[uint64]int{}
	for shard := range shards {
		var ranks []int
		for _, p := range processes {
			rank := order(processes, p, shard)
			if ranks = append(ranks, rank); rank == 0 {
				first[p]++
			}
		}
		slices.Sort(ranks)
		for i, rank := range ranks {
			if rank != i {
				t.Fatalf("shard %d: the ranks are %v, want each once", shard, ranks)
			}
		}
	}
	for p, got := range first {
		if got < shards/n/2 || got > 2*shards/n {
			t.Errorf("process %x is the first for %d of %d shards", p, got, shards)
		}
	}
	// Whoever goes leaves its shards to others, and moves no other.
	gone, left := processes[3], slices.Delete(slices.Clone(processes), 3, 4)
	for shard := range shards {
		for _, p := range left {
			before := order(processes, p, shard)
			if order(processes, gone, shard) < before {
				before--
			}
			if now := order(left, p, shard); now != before {
				t.Fatalf("shard %d: rank %d became %d when another process went", shard, before, now)
			}
		}
	}
}

func TestAProcessThatCannotReadTheListBehavesAsIfItWereAlone(t *testing.T) {
	t.Parallel()
	h := NewHome("sw", "kart", 1, nil)
	h.self = hashOf("self")
	r := &roster{serving: []uint64{h.self}, read: time.Now()}
	for i := 0; order(r.serving, h.self, 0) < 2; i++ {
		r.serving = append(r.serving, hashOf(fmt.Sprint(i)))
	}
	r.draining = r.serving
	h.roster.Store(r)
	if rank, rest := h.Rank(0), h.Rest(0); rank < 2 || rest < restTogether {
		t.Errorf("rank %d rests %v, want 2 or more and some time", rank, rest)
	}
	old := *r
	old.read = time.Now().Add(-aliveFor - time.Second)
	h.roster.Store(&old)
	if rank, rest := h.Rank(0), h.Rest(0); rank != 0 || rest != 0 {
		t.Errorf("with a list of long ago: rank %d rests %v, want 0 and none", rank, rest)
	}
}
