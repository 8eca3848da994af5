package partitiontest

import (
	"fmt"
	"time"

	"github.com/spillway-io/spillway/partition"
)

func produceDropsTheOldest(b *bench) {
	b.open(nil)
	for _, row := range []struct{ k, evicted, depth int }{{3, 0, 3}, {7, 0, 10}, {1, 1, 10}, {6, 6, 10}, {10, 10, 10}, {25, 25, 10}} {
		g := b.produce("kart", b.entries(row.k))
		b.same(fmt.Sprintf("%d more", row.k), []int{g.Accepted, g.Evicted, g.Depth}, []int{row.k, row.evicted, row.depth})
	}
	l := b.lease("kart", 3, time.Hour)
	b.same("the newest are left", payloads(l), "[43 44 45 46 47 48 49 50]")
	b.ledgerIs(partition.Ledger{Accepted: 52, Evicted: 42, Buffered: 10})
}

func produceRunsEachGroupByItself(b *bench) {
	b.open(func(p *partition.Policy) { p.MaxPartitions = 3 })
	var groups []*partition.Group
	for i := range 5 {
		groups = append(groups, b.group(fmt.Sprint("p", i), b.entries(i+1)))
	}
	groups[1].Entries = nil // a bug of the caller, and only its own
	b.store.Produce(b.Context(), groups)
	b.is("no entries", groups[1].Err, partition.ErrBroken)
	b.is("a partition too many", groups[4].Err, partition.ErrTooManyPartitions)
	for _, i := range []int{0, 2, 3} {
		b.same(fmt.Sprint("group ", i), []any{groups[i].Accepted, groups[i].Depth, groups[i].Err}, []any{i + 1, i + 1, nil})
	}
	b.ledgerIs(partition.Ledger{Accepted: 8, Buffered: 8})
}

func anIdempotencyKeyCountsOnce(b *bench) {
	b.open(nil)
	b.produce("kart", b.entries(9))
	once := func(name, key string, entries [][]byte) *partition.Group {
		g := b.group(name, entries)
		g.IdempotencyKey = key
		b.store.Produce(b.Context(), []*partition.Group{g})
		b.is("produce", g.Err, nil)
		return g
	}
	entries := b.entries(3)
	for i, g := range []*partition.Group{once("kart", "k1", entries), once("kart", "k1", entries)} {
		b.same("result", []any{g.Accepted, g.Evicted, g.Depth, g.Repeated}, []any{3, 2, 10, i == 1})
	}
	b.same("another key", once("kart", "k2", entries).Repeated, false)
	b.same("another partition", once("kart.2", "k1", entries).Repeated, false)
	b.same("a key of any bytes", once("kart.2", "\x00\r\n {}:*\xff", entries).Repeated, false)
	b.same("and again", once("kart.2", "\x00\r\n {}:*\xff", entries).Repeated, true)
	b.ledgerIs(partition.Ledger{Accepted: 21, Evicted: 5, Buffered: 16})
}

func keysAreBounded(b *bench) {
	b.open(func(p *partition.Policy) { p.MaxKeys = 2 })
	once := func(key string) *partition.Group {
		g := b.group("kart", b.entries(1))
		g.IdempotencyKey = key
		b.store.Produce(b.Context(), []*partition.Group{g})
		return g
	}
	for _, key := range []string{"1", "2", "1"} {
		b.is("key "+key, once(key).Err, nil)
	}
	b.is("a third key", once("3").Err, partition.ErrTooManyKeys)
	b.is("without a key", once("").Err, nil)
	b.is("a key of a fan-out", once("branch\n3").Err, nil)
	o, err := b.store.Overview(b.Context(), b.ns)
	b.same("keys", []any{o.Keys, err}, []any{3, nil})
	b.ledgerIs(partition.Ledger{Accepted: 4, Buffered: 4})
}

func partitionsAreBounded(b *bench) {
	b.open(func(p *partition.Policy) { p.MaxPartitions, p.Linger = 2, 0 })
	b.produce("a", b.entries(4))
	b.produce("b", b.entries(1))
	g := b.group("c", b.entries(1))
	g.IdempotencyKey = "k"
	b.store.Produce(b.Context(), []*partition.Group{g})
	b.is("a third partition", g.Err, partition.ErrTooManyPartitions)
	b.produce("a", b.entries(1))
	l := b.lease("a", 2, time.Hour)
	b.delivered(l, l.From, l.To)
	l = b.lease("a", 1, time.Hour)
	b.delivered(l, l.From, l.To)
	b.store.Produce(b.Context(), []*partition.Group{g})
	b.same("once one is empty", []any{g.Err, g.Repeated, g.Depth}, []any{nil, false, 1})
	b.ledgerIs(partition.Ledger{Accepted: 7, Delivered: 5, Buffered: 2})
}

func shardsShareANamespace(b *bench) {
	b.open(func(p *partition.Policy) { p.Shards, p.MaxPartitions = 4, 1000 })
	used := map[int]bool{}
	var groups []*partition.Group
	for i := range 40 {
		name := fmt.Sprint("player-", i)
		used[b.ns.ShardOf(name)] = true
		groups = append(groups, b.group(name, b.entries(4)))
	}
	b.same("shards used", len(used), 4)
	b.store.Produce(b.Context(), groups)
	var requests []partition.ClaimRequest
	for i, g := range groups {
		b.is(g.Partition, g.Err, nil)
		if i%2 == 0 {
			requests = append(requests, partition.ClaimRequest{Namespace: b.ns, Partition: g.Partition, MaxBatches: 1})
		}
	}
	listed := 0
	for shard := range 4 {
		list, total, err := b.store.Due(b.Context(), b.ns, shard, 0, 100)
		b.is("due", err, nil)
		b.same("all of them are due", total, len(list))
		for _, d := range list {
			b.same("shard of "+d.Partition, b.ns.ShardOf(d.Partition), shard)
		}
		listed += len(list)
	}
	b.same("partitions listed", listed, 40)
	claims := b.store.Claim(b.Context(), requests, time.Hour)
	var ends []*partition.Commit
	for _, c := range claims {
		if c.Err != nil || c.Lease == nil {
			b.Fatalf("%s: %v", c.Partition, c.Err)
		}
		ends = append(ends, &partition.Commit{Lease: c.Lease, Lo: c.Lease.From, Hi: c.Lease.To, Delivered: 4})
	}
	b.store.Commit(b.Context(), ends)
	for _, s := range ends {
		b.is(s.Lease.Partition, s.Err, nil)
	}
	o, err := b.store.Overview(b.Context(), b.ns)
	b.is("overview", err, nil)
	b.same("partitions", o.Partitions, 20)
	b.ledgerIs(partition.Ledger{Accepted: 160, Delivered: 80, Buffered: 80})
}

func namespacesDoNotMeet(b *bench) {
	b.open(nil)
	policy := b.ns.Policy
	if b.target.Alone {
		b.prefix += "x"
	}
	store := b.another(map[string]partition.Policy{"default": policy, "default.0": policy, "other": policy})
	for _, name := range []string{"default", "default.0", "other"} {
		b.store, b.ns = store, store.Namespace(name)
		b.produce("0", b.entries(2))
		b.produce("kart", b.entries(1))
	}
	for _, ns := range store.Namespaces() {
		b.ns = ns
		b.ledgerIs(partition.Ledger{Accepted: 3, Buffered: 3})
	}
}
