package lua_test

import (
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
