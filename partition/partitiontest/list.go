package partitiontest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// list reads all pages of the namespace's partitions; between calls after each.
func (b *bench) list(limit int, between func()) (all []partition.Stats) {
	b.Helper()
	var from partition.Page
	for pages := 0; ; pages++ {
		page, next, err := b.store.Partitions(b.Context(), b.ns, from, limit)
		if err != nil || len(page) > limit || pages > 1000 {
			b.Fatalf("page %d: %d partitions, %v", pages, len(page), err)
		}
		all = append(all, page...)
		if from = next; next == (partition.Page{}) {
			return all
		}
		between()
	}
}

func partitionsAreListed(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards = 3 })
	b.same("nothing there", b.list(7, func() {}), "[]")
	want, got := map[string]int{}, map[string]int{}
	for i := range 50 {
		want[fmt.Sprint("p", i)] = i%3 + 1
		b.produce(fmt.Sprint("p", i), b.entries(i%3+1))
	}
	list := b.list(7, func() {})
	for _, st := range list {
		got[st.Partition] += st.Depth
	}
	b.same("depth by partition", got, want)
	st, err := b.store.Stats(b.Context(), b.ns, list[0].Partition)
	b.is("stats", err, nil)
	list[0].OldestAge, st.OldestAge = 0, 0
	b.same("the same partition alone", st, list[0])
}

// Partitions that nothing happens to are listed once, whatever happens to the others.
func aListOfPartitionsMissesNone(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards, p.Batch = 2, 1 })
	want, got := map[string]int{}, map[string]int{}
	var busy []string
	for i := range 90 {
		name := fmt.Sprint("p", i)
		b.produce(name, b.entries(2))
		if want[name] = 1; i%3 != 0 {
			delete(want, name)
			busy = append(busy, name)
		}
	}
	for _, st := range b.list(4, func() {
		for range 5 {
			name := busy[rand.IntN(len(busy))]
			if c := b.claim(name, 2, time.Hour); c.Lease != nil {
				b.delivered(c.Lease, c.Lease.From, c.Lease.To)
			} else {
				b.produce(name, b.entries(1))
			}
		}
	}) {
		if want[st.Partition] == 1 {
			got[st.Partition]++
		}
	}
	b.same("partitions that nothing happened to", got, want)
}

// Describing them takes several calls, because each reads the oldest entry.
func partitionsWithLargeEntriesAreListed(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards = 1 })
	var want, got []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("p%02d", i))
		b.produce(want[i], [][]byte{partition.AppendEntry(nil, b.now(), nil, make([]byte, 100_000))})
	}
	for _, st := range b.list(100, func() {}) {
		got = append(got, st.Partition)
	}
	slices.Sort(got)
	b.same("partitions", got, want)
}
