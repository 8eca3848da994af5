package lua_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/redistest"
)

// calls are one of each script that writes, on a partition leased by "t1".
func calls(p *part, from int64) map[*lua.Script]func() ([]string, []any) {
	return map[*lua.Script]func() ([]string, []any){
		lua.Produce: func() ([]string, []any) { return append(p.keys(), p.seen), p.produceArgs(1, p.fresh(3)...) },
		lua.Claim:   func() ([]string, []any) { p.makeDue(); return p.keys(), p.claimArgs("t2") },
		lua.Commit: func() ([]string, []any) {
			return append(p.keys(), p.dead), p.commitArgs("t1", from, from+4, [3]int64{2, 1, 1}, "d")
		},
		lua.Release: func() ([]string, []any) { return p.releaseKeys(), p.releaseArgs("t1", 10, 1) },
		lua.Repair:  func() ([]string, []any) { p.makeDue(); return p.keys(), p.repairArgs() },
		lua.Purge:   func() ([]string, []any) { p.makeDue(); return p.keys(), p.purgeArgs(everything) },
	}
}

// A server that rejects writes rejects every script whole, and runs it once it accepts
// writes again.
func TestScriptsAreRejectedWholeByAServerThatRejectsWrites(t *testing.T) {
	t.Parallel()
	for _, fault := range redistest.Rejections {
		for _, state := range []string{"nothing there", "a leased partition", "a vanished leased list", "stale entries", "a list cut short"} {
			t.Run(fault.Word+", "+state, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				c := s.Client()
				p := newPart(t, c)
				states[state](p)
				p.makeDue()
				for script, call := range calls(p, p.seq("from")) {
					keys, argv := call()
					before := p.snapshot()
					fault.Begin(t, s)
					reply, err := p.try(script, keys, argv...)
					if text, ok := answerText(reply); ok {
						err = errors.New(text)
					}
					if err == nil {
						// It may find nothing to write: a lease that is gone.
						p.same(script.Name, reply[1], 0)
					} else if !strings.HasPrefix(err.Error(), fault.Word+" ") {
						t.Errorf("%s: got %v, want %s", script.Name, err, fault.Word)
					}
					p.same(script.Name+" changed the shard", p.snapshot(), before)
					fault.End(t, s)
				}
				p.produce(p.fresh(1)...)
				p.repair()
				p.lawful()
			})
		}
	}
}

func do(t *testing.T, c *redis.Client, args ...any) {
	t.Helper()
	if err := c.Do(context.Background(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// A full store rejects what adds and runs what frees.
func TestAFullStoreRejectsProduceAndStillDrains(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	ctx := context.Background()
	var parts []*part
	prefix := "sw:{full.0}:"
	for i := range 4 {
		p := partIn(t, c, prefix, fmt.Sprint("kart", i))
		p.capacity, p.full, p.batch, p.maxActive = 1000, 128, 128, 100
		entries := p.fresh(600)
		if i == 3 {
			entries = append(p.aged(300, 200_000), entries[:300]...)
		}
		for i := range entries {
			entries[i] += strings.Repeat("x", 1000)
		}
		p.produce(entries...)
		p.makeDue()
		parts = append(parts, p)
	}
	vanished := partIn(t, c, prefix, "vanished")
	vanished.maxActive = 100
	vanished.produce(vanished.fresh(4)...)
	vanished.do("del", vanished.q)

	do(t, c, "config", "set", "maxmemory", "1mb")
	used := func() int64 {
		n, _ := c.InfoMap(ctx, "memory").Item("Memory", "used_memory"), 0
		var v int64
		_, _ = fmt.Sscan(n, &v)
		return v
	}
	rejected := func(p *part) {
		t.Helper()
		p.rejects("OOM ", lua.Produce, append(p.keys(), p.seen), p.produceArgs(1, p.fresh(3)...)...)
	}
	newcomer := partIn(t, c, prefix, "new")
	newcomer.maxActive = 100
	rejected(newcomer)
	rejected(vanished)
	for _, p := range parts {
		rejected(p)
	}

	full := used()
	p := parts[0]
	from := p.claim("t1")[3].(int64)
	p.same("commit", p.commit("t1", from, from+128, [3]int64{100, 0, 28}, make([]string, 28)...)[0], 1)
	p.same("length", len(p.list()), 472)
	p.claim("t2")
	p.same("release", p.release("t2", 0, 1)[0], 1)
	rejected(p)

	p = parts[1]
	p.do("del", p.m)
	p.same("claim of a list without its hash", p.claim("t1")[0], 2)
	p = parts[2]
	from = p.claim("t1")[3].(int64)
	p.same("commit that leaves nothing of the lease", p.delivered("t1", from, from+128)[0], 1)
	p.same("length", len(p.list()), 472)
	p = parts[3]
	p.same("repair drops stale entries", p.repair()[2], 300)
	p.same("repair", vanished.repair()[0], 1)
	if now := used(); now > full-100_000 { // INFO counts buffers of clients, too
		t.Errorf("memory in use went from %d to %d only", full, now)
	}
	do(t, c, "config", "set", "maxmemory", "0")
	p.same("produce once there is room", p.produce(p.fresh(1)...)[0], 1)
}

func TestAllKeysOfACallAreInOneSlot(t *testing.T) {
	t.Parallel()
	c := redistest.StartClusterOfOne(t).Client()
	for _, name := range []string{"a", "A.b-c_d", strings.Repeat("x", 128), "0", "a.0", "q", "ready", "..", "a_-."} {
		for _, shard := range []string{"sw:{default.0}:", "other:{n.s-1_x.1023}:"} {
			p := partIn(t, c, shard, name)
			p.full = 1
			slot := c.ClusterKeySlot(context.Background(), shard).Val()
			for _, key := range append(p.keys(), p.dead, p.seen) {
				if got := c.ClusterKeySlot(context.Background(), key).Val(); got != slot {
					t.Errorf("%s is in slot %d, its shard in %d", key, got, slot)
				}
			}
			// Redis itself rejects keys that are not declared or in another slot.
			p.maxActive, p.maxKeys = 100, 100
			p.produceOnce(p.fresh(2)...)
			from := p.claim("t1")[3].(int64)
			p.release("t1", 0, 1)
			p.claim("t2")
			p.commit("t2", from, from+2, [3]int64{1, 0, 1}, "d")
			p.produce(p.fresh(1)...)
			p.repair()
			p.stats()
			p.peek(p.own(), 0, 0, 1, 1)
			p.purge(everything)
			p.discard("d")
		}
	}
}
