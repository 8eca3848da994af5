package space

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
)

// history opens that of the namespace mail, as one process does.
func history(t *testing.T, url string) *History {
	t.Helper()
	b := backendtest.Open(t, backend.Config{URL: url})
	h := NewHome("sw", "mail", 3, nil)
	New(Config{Kind: &Kind{}, Prefix: "sw", Log: zap.NewNop()}, b).Adopt(h)
	return h.History
}

func TestAHistoryIsTheSameInEveryProcessAndThereAfterARestart(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func() string{
		"redis":   func() string { return redistest.Start(t).URL() },
		"cluster": func() string { return redistest.StartMasters(t, 2).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			at := url()
			one, other := history(t, at), history(t, at)
			want := []Record{{100, []int64{7, 0}}, {101, []int64{9, -1}}, {105, []int64{9, 3}}, {165, []int64{9, 3}}}
			for _, r := range []Record{want[0], {100, []int64{8, 0}}, want[1], {102, want[1].Figures}, want[2], {164, want[2].Figures}, want[3]} {
				for _, h := range []*History{one, other} { // both take themselves for the first
					if err := h.Record(t.Context(), r); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, h := range []*History{one, other, history(t, at)} {
				if got, err := h.Read(t.Context()); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("got %v, %v, want %v", got, err, want)
				}
			}
		})
	}
}

func TestAHistoryIsADayLongAndEndsADayAfterItsNamespace(t *testing.T) {
	t.Parallel()
	server := redistest.StartWithClock(t)
	h, c := history(t, server.URL()), server.Client()
	for minute := range int64(HistoryKept + 10) {
		if err := h.Record(t.Context(), Record{minute, []int64{minute}}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := h.Read(t.Context())
	if err != nil || len(all) != HistoryKept || all[0].Minute != 10 {
		t.Errorf("%d are left, %v", len(all), err)
	}
	if err := h.Record(t.Context(), Record{all[len(all)-1].Minute - 1, []int64{1}}); err != nil { // by a clock that is behind
		t.Fatal(err)
	}
	if last := c.LIndex(t.Context(), h.key, -1).Val(); !strings.HasPrefix(last, fmt.Sprint(all[len(all)-1].Minute)) {
		t.Errorf("a minute that is over became the last: %s", last)
	}
	c.HSet(t.Context(), h.ledger, "closed", time.Now().Add(24*time.Hour).UnixMilli())
	if err := h.Record(t.Context(), Record{5000, []int64{1}}); err != nil {
		t.Fatal(err)
	}
	if n := c.LLen(t.Context(), h.key).Val(); n != HistoryKept {
		t.Errorf("%d records after one of a namespace that is being deleted", n)
	}
	server.Advance(historyTTL + time.Minute)
	if keys := c.Keys(t.Context(), "*").Val(); fmt.Sprint(keys) != "["+h.ledger+"]" {
		t.Errorf("a day later there are %v", keys)
	}
}

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
