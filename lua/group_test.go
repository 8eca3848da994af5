package lua_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
)

// group are several partitions of one shard, which share a call.
type group []*part

// partsIn are n partitions in the shard of p; the first is p itself.
func partsIn(p *part, n int) group {
	g := group{p}
	for i := 1; i < n; i++ {
		other := *p
		q := partIn(p.t, p.c, strings.TrimSuffix(p.ready, "ready"), fmt.Sprint("kart", i))
		other.name, other.q, other.m, other.seen = q.name, q.q, q.m, q.seen
		g = append(g, &other)
	}
	return g
}

func (g group) keys() []string {
	keys := g[0].shared()
	for _, p := range g {
		keys = append(keys, p.own()...)
	}
	return keys
}

// entries are k fresh ones for each partition; no two are the same.
func (g group) entries(k int) [][]string {
	all := make([][]string, len(g))
	for i := range g {
		all[i] = g[0].fresh(k)
	}
	return all
}

// produceCall brings k fresh entries to each partition.
func (g group) produceCall(k int) ([]string, []any) { return g.produceOf(g.entries(k)...) }

// produceOf brings to each partition its entries.
func (g group) produceOf(entries ...[]string) ([]string, []any) {
	argv := g[0].produceShared()
	for i, p := range g {
		for _, e := range entries[i] {
			argv[6] = max(argv[6].(int64), int64(len(e)))
		}
		argv = append(argv, p.produceOwn(0, entries[i]...)...)
	}
	return g.keys(), argv
}

func (g group) produce(entries ...[]string) []any {
	g[0].t.Helper()
	keys, argv := g.produceOf(entries...)
	return g[0].produceReply(keys, argv)
}

func (g group) fill(k int) {
	g[0].t.Helper()
	g.produce(g.entries(k)...)
}

func (g group) makeDue() {
	for _, p := range g {
		p.makeDue()
	}
}

func (g group) claimCall(token string) ([]string, []any) {
	argv := g[0].claimShared(token)
	for _, p := range g {
		argv = append(argv, p.name)
	}
	return g.keys(), argv
}

// claim returns an answer for each partition: an array, or a rejection's text.
func (g group) claim(token string) []any {
	g[0].t.Helper()
	keys, argv := g.claimCall(token)
	return claimed(g[0].must(lua.Claim, keys, argv...))
}

// claimed are the answers in a reply to claim.
func claimed(reply []any) []any {
	var all []any
	for _, answer := range claimAnswers(reply) {
		if text, ok := answer[0].(string); ok {
			all = append(all, text)
		} else {
			all = append(all, any(answer))
		}
	}
	return all
}

// commitCall settles the whole range of each partition as delivered.
func (g group) commitCall(token string) ([]string, []any) {
	argv := g[0].commitShared()
	for _, p := range g {
		from, to := p.seq("from"), p.seq("to")
		argv = append(argv, p.commitOwn(token, from, to, [3]int64{to - from, 0, 0})...)
	}
	return g.keys(), argv
}

// releaseCall gives each partition's range back at once.
func (g group) releaseCall(token, done string) ([]string, []any) {
	keys := []string{g[0].ready}
	var argv []any
	for _, p := range g {
		keys = append(keys, p.m)
		argv = append(argv, p.name, p.token(token), 0, 1, done)
	}
	return keys, argv
}

// lawful checks both invariants over all partitions, which are the shard's only ones.
func (g group) lawful() {
	p := g[0]
	p.t.Helper()
	buffered := int64(0)
	for _, q := range g {
		length := int64(len(q.list()))
		buffered += length
		if span := q.seq("tail") - q.seq("head"); span != length {
			p.t.Fatalf("%s, I1: tail-head is %d, the list holds %d", q.name, span, length)
		}
		if (q.due() != -1) != (length > 0) {
			p.t.Fatalf("%s: %d entries, active: %v", q.name, length, q.due() != -1)
		}
	}
	out := p.count("delivered") + p.count("evicted") - p.count("reclaimed") + p.count("expired") + p.count("dead") + p.count("lost")
	if in := p.count("accepted"); in != out+buffered {
		p.t.Fatalf("the law: accepted %d, out %d, buffered %d", in, out, buffered)
	}
}

// several runs a directed test on n partitions of one shard, on both servers.
func several(t *testing.T, n int, f func(t *testing.T, g group)) {
	t.Helper()
	on(t, func(t *testing.T, p *part) { f(t, partsIn(p, n)) })
}

// large makes n fresh entries of a size.
func (p *part) large(n, size int) []string {
	p.t.Helper()
	entries := p.fresh(n)
	for i, e := range entries {
		entries[i] = e + strings.Repeat("x", size-len(e))
	}
	return entries
}
