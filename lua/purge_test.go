package lua_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
)

const everything = int64(1e13)

func (p *part) purgeArgs(cutoff int64) []any {
	return []any{cutoff, 1000, 1 << 20, 1, 0, p.name}
}

// purge returns {code, dropped}.
func (p *part) purge(cutoff int64) []any {
	p.t.Helper()
	return p.must(lua.Purge, p.keys(), p.purgeArgs(cutoff)...)[1:]
}

func TestPurgeIsBoundedInBytes(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.capacity = 1000
		p.produce(p.large(300, 10_000)...)
		reply := p.must(lua.Purge, p.keys(), p.now()+1000, 1000, 1<<19, 1, 0, p.name)
		p.same("code", reply[1], 1)
		if n := reply[2].(int64); n < 52 || n > 60 {
			t.Errorf("%d entries of 10,000 bytes, want about 512 KiB", n)
		}
		p.lawful()
	})
}

// Redis frees each large entry by itself: 10,000 of 64 KiB would hold it up for 50 ms.
func TestPurgeOfAllIsBoundedInBytesOfLargeEntries(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.capacity = 1000
		p.produce(p.large(300, 10_000)...)
		unread := func(room, drop int) string {
			return fmt.Sprint(p.must(lua.Purge, p.keys(), everything, 1000, room, drop, 0, p.name)[1:])
		}
		p.same("counted", unread(1<<19, 0), "[0 300]")
		if got := unread(1<<19, 1); got != "[1 52]" {
			t.Errorf("answer %s, want the 52 entries of 10,000 bytes that 512 KiB are", got)
		}
		p.same("never less than one", unread(1, 1), "[1 1]")
		p.lawful()
		p.do("hdel", p.m, "head")
		p.same("of unknown size", unread(1<<19, 1), "[1 8]")
		p.same("the rest", unread(1<<30, 1), "[0 239]")
		p.lawful()
	})
}

func TestPurgeRejectsWhatItCannotRead(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(4)...)
		p.rejectsBadArgs(lua.Purge, p.keys(), p.purgeArgs(everything), nil, 2, 3)
		p.rejects("bad arguments", lua.Purge, p.keys(), everything, 1, 1, 2, 0, p.name)
		p.rejects("bad arguments", lua.Purge, p.keys(), everything, 1, 1, 1, 1, p.name)
		p.do("hset", p.ledger, "purged", "foreign")
		p.rejects("foreign value", lua.Purge, p.keys(), p.purgeArgs(everything)...)
	})
	rejectsForeign(t, states, lua.Purge, func(p *part) ([]string, []any) { return p.keys(), p.purgeArgs(everything) })
}

func TestPurgeRunsWhileTheStoreIsFull(t *testing.T) {
	t.Parallel()
	c := callsServer(t)
	p := newPart(t, c)
	p.capacity = 1000
	entries := p.fresh(900)
	for i := range entries {
		entries[i] += strings.Repeat("x", 1000)
	}
	p.produce(entries...)
	do(t, c, "config", "set", "maxmemory", "1")
	p.same("part of it", p.must(lua.Purge, p.keys(), everything, 500, 1, 1, 0, p.name)[1:], "[1 500]")
	p.lawful()
	p.same("the rest", p.purge(everything), "[0 400]")
	p.lawful()
}

func (p *part) discard(letters ...any) []any { return p.discardNear(1000, letters...) }

// discardNear discards letters that are said to be at a place.
func (p *part) discardNear(place int, letters ...any) []any {
	p.t.Helper()
	var args []any
	for _, letter := range letters {
		args = append(args, place, letter)
	}
	return p.must(lua.Discard, []string{p.dead, p.ledger}, args...)[1:]
}

func TestDiscardRemovesLettersOnce(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		from := p.leased(4, "t1")
		p.commit("t1", from, from+4, [3]int64{1, 0, 3}, "first", "second", "third")
		p.same("removed", p.discard("second", "other", "second", "first"), "[1 0 0 1]")
		p.same("left", p.c.LRange(t.Context(), p.dead, 0, -1).Val(), "[third]")
		p.same("in the ledger", []int64{p.count("dead"), p.count("dead_count"), p.count("dead_bytes")}, []int64{3, 1, 5})
		p.same("again", p.discard("second"), "[0]")
		p.do("rpush", p.dead, "first", "third")
		p.same("one of two", p.discard("third"), "[1]")
		p.same("left", p.c.LRange(t.Context(), p.dead, 0, -1).Val(), "[third first]")
		p.lawful()
		p.do("rpush", p.dead, "third")
		p.same("the oldest of two", p.discardNear(1, "third"), "[1]")
		p.same("left", p.c.LRange(t.Context(), p.dead, 0, -1).Val(), "[first third]")
		p.same("far from its place", p.discardNear(0, "third"), "[1]")
	})
}

// After something other than Spillway removed letters, the count in the ledger never falls below 0.
func TestDiscardOfForeignLettersCountsNoneBelowZero(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.do("rpush", p.dead, "a", "b")
		p.same("removed", p.discard("a", "b"), "[1 1]")
		p.same("in the ledger", []int64{p.count("dead_count"), p.count("dead_bytes")}, []int64{0, 0})
	})
}

func TestDiscardRejectsWhatItCannotWrite(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.do("rpush", p.dead, "a")
		keys := []string{p.dead, p.ledger}
		p.rejects("bad arguments", lua.Discard, keys)
		p.rejects("bad arguments", lua.Discard, slices.Concat(keys, keys), 0, "a")
		p.rejects("bad arguments", lua.Discard, keys, "a")
		p.rejects("bad arguments", lua.Discard, keys, 0, "a", -1, "a")
		p.do("set", p.dead, "foreign")
		p.rejects("WRONGTYPE", lua.Discard, keys, 0, "a")
		p.do("del", p.dead)
		p.do("rpush", p.dead, "a")
		p.do("hset", p.ledger, "dead_count", "foreign")
		p.rejects("foreign value", lua.Discard, keys, 0, "a")
	})
}
