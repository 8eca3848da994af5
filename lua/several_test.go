package lua_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
)

const wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"

func TestBadArgumentsOfOnePartitionRejectTheWholeCall(t *testing.T) {
	several(t, 3, func(t *testing.T, g group) {
		p := g[0]
		keys, argv := g.produceCall(1)
		p.rejectsBadArgs(lua.Produce, keys, argv, []int{9, 11, 13}, 1, 2, 5, 8, 9, 11, 13)
		p.rejects("ERR produce: bad arguments", lua.Produce, keys[:len(keys)-2], argv...)
		p.rejects("ERR produce: bad arguments", lua.Produce, append(keys, p.dead), argv...)
		g.fill(4)
		keys, argv = g.claimCall("t1")
		p.rejects("ERR claim: bad arguments", lua.Claim, keys[:len(keys)-2], argv...)
		p.rejects("ERR claim: bad arguments", lua.Claim, keys, argv[:len(argv)-1]...)
		g.claim("t1")
		keys, argv = g.commitCall("t1")
		p.rejectsBadArgs(lua.Commit, keys, argv, []int{7, 8, 9, 10, 13, 14, 15, 16, 19, 20, 21, 22}, 1, 3, 4)
		p.rejects("ERR commit: bad arguments", lua.Commit, append(keys, p.dead), argv...)
		keys, argv = g.releaseCall("t1", "")
		p.rejectsBadArgs(lua.Release, keys, argv, []int{3, 4, 8, 9, 13, 14})
		p.rejects("ERR release: bad arguments", lua.Release, keys[:3], argv...)
		p.rejects("ERR repair: bad arguments", lua.Repair, g.keys()[:6], p.maxAge, 600_000, "a", "b", "c")
	})
}

func TestClaimLeavesWhatItHasNoRoomFor(t *testing.T) {
	several(t, 3, func(t *testing.T, g group) {
		p := g[0]
		p.bytes = 40_000
		entries := [][]string{p.large(4, 4000), p.large(4, 4000), p.large(4, 4000)}
		g.produce(entries...)
		reply := g.claim("t1")
		p.same("the third", reply[2], []any{3})
		for i := range 2 {
			p.same("a batch is whole", reply[i].([]any)[5], entries[i])
		}
		p.same("the third is not leased", g[2].field("token")+g[2].field("to"), "")
		p.same("the next call", g.claim("t2")[2].([]any)[5], entries[2])
		g.lawful()
	})
}

func TestClaimGivesOneEntryHoweverLittleRoomThereIs(t *testing.T) {
	several(t, 3, func(t *testing.T, g group) {
		p := g[0]
		p.bytes = 1
		entries := [][]string{p.large(4, 4000), p.large(4, 4000), p.large(4, 4000)}
		g.produce(entries...)
		p.do("zadd", p.ready, p.now()+60_000, p.name) // what is not due takes no room
		reply := g.claim("t1")
		p.same("the first", reply[0], []any{0, p.due()})
		p.same("the second", reply[1].([]any)[5], entries[1][:1])
		p.same("the third", reply[2], []any{3})
	})
}

func TestStaleEntriesAreBoundedInACallNotInEachPartition(t *testing.T) {
	several(t, 3, func(t *testing.T, g group) {
		p := g[0]
		p.capacity = 1000
		g.produce(p.aged(700, 200_000), p.aged(700, 200_000), p.aged(700, 200_000))
		g.makeDue()
		dropped := int64(0)
		for i, answer := range g.claim("t1") {
			a := answer.([]any)
			p.same("no lease", a[0], 1)
			dropped += a[1].(int64)
			if left := len(g[i].list()); left > 0 && g[i].due() > p.now() {
				t.Errorf("%s has %d stale entries and is not due", g[i].name, left)
			}
		}
		if dropped < 1000 || dropped > 1100+2*64 {
			t.Errorf("one call dropped %d entries, want about 1,000", dropped)
		}
		p.same("expired", p.count("expired"), dropped)
		g.lawful()
	})
}

func TestCommitWithoutDeadLettersIsSettledBesideAForeignValueInTheirPlace(t *testing.T) {
	several(t, 3, func(t *testing.T, g group) {
		p := g[0]
		p.maxDead = 10
		g.fill(4)
		g.claim("t1")
		argv := p.commitShared()
		for i, letters := range [][]string{{"a1"}, {}, {"c1", "c2"}} {
			from, dead := g[i].seq("from"), int64(len(letters))
			argv = append(argv, g[i].commitOwn("t1", from, from+4, [3]int64{4 - dead, 0, dead}, letters...)...)
		}
		p.do("set", p.dead, "foreign")
		p.same("answers", p.must(lua.Commit, append(g.keys(), p.dead), argv...)[1:], []any{wrongType, 1, wrongType})
		p.same("the lease goes on", g[2].field("token"), p.token("t1"))
		p.ledgerIs(map[string]int64{"accepted": 12, "delivered": 4})
		g.lawful()
	})
}

func TestProduceNotesTheSizeOfLargeEntriesOnly(t *testing.T) {
	several(t, 3, func(t *testing.T, g group) {
		p := g[0]
		big := func(want ...string) {
			t.Helper()
			p.same("big", []string{g[0].field("big"), g[1].field("big"), g[2].field("big")}, want)
		}
		g.produce(p.large(2, 4096), p.large(1, 5000), p.fresh(1))
		big("", "5000", "")
		g.produce(p.large(1, 4097), p.large(1, 4999), p.fresh(1))
		big("4097", "5000", "")
		g.fill(1)
		big("4097", "5000", "")
		g.produce(p.fresh(1), append(p.large(1, 70_000), p.fresh(1)...), p.fresh(1))
		big("4097", "70000", "")
	})
}

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
