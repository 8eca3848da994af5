package lua_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// same compares replies, and anything else, by their text.
func (p *part) same(what string, got, want any) {
	p.t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		p.t.Fatalf("%s: got %s, want %s", what, g, w)
	}
}

// ledgerIs compares the counts that are not zero.
func (p *part) ledgerIs(want map[string]int64) {
	p.t.Helper()
	got := map[string]int64{}
	for class, text := range p.c.HGetAll(context.Background(), p.ledger).Val() {
		if n, _ := strconv.ParseInt(text, 10, 64); n != 0 && class != "high_water" && class != "dead_bytes" && class != "dead_count" && class != "paused" {
			got[class] = n
		}
	}
	if !maps.Equal(got, want) {
		p.t.Fatalf("ledger: got %v, want %v", got, want)
	}
}

// lawful checks both invariants; the partition must be the only one of its shard.
func (p *part) lawful() {
	p.t.Helper()
	length := int64(len(p.list()))
	if known := p.field("tail") != ""; known != (length > 0) {
		p.t.Fatalf("%d entries, hash known: %v", length, known)
	}
	if span := p.seq("tail") - p.seq("head"); span != length {
		p.t.Fatalf("I1: tail-head is %d, the list holds %d", span, length)
	}
	if (p.due() != -1) != (length > 0) {
		p.t.Fatalf("%d entries, active: %v", length, p.due() != -1)
	}
	out := p.count("delivered") + p.count("evicted") - p.count("reclaimed") + p.count("expired") + p.count("dead") + p.count("lost")
	if in := p.count("accepted"); in != out+length {
		p.t.Fatalf("the law: accepted %d, out %d, buffered %d", in, out, length)
	}
}

// snapshot is everything the shard holds, as text.
func (p *part) snapshot() string {
	p.t.Helper()
	ctx := context.Background()
	prefix, _, _ := strings.Cut(p.ready, "ready")
	names, err := p.c.Keys(ctx, prefix+"*").Result()
	if err != nil {
		p.t.Fatal(err)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		kind := p.c.Type(ctx, name).Val()
		var value any
		switch kind {
		case "list":
			value = p.c.LRange(ctx, name, 0, -1).Val()
		case "hash":
			value = p.c.HGetAll(ctx, name).Val()
		case "zset":
			value = p.c.ZRangeWithScores(ctx, name, 0, -1).Val()
		case "string":
			value = p.c.Get(ctx, name).Val()
		}
		fmt.Fprintf(&b, "%s %s %q expires=%v\n", name, kind, value, p.c.PTTL(ctx, name).Val() > 0)
	}
	return b.String()
}
