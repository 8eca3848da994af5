package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
)

// batches are the entries of a claim's reply, a slice a batch.
func batches(reply []any) [][]string {
	var all [][]string
	for _, b := range reply[5:] {
		var batch []string
		for _, e := range b.([]any) {
			batch = append(batch, e.(string))
		}
		all = append(all, batch)
	}
	return all
}

// A sink knows what it has by the ends of batches. A namespace may get another batch meanwhile.
func TestARangeOfOneBatchKeepsItsEndWhateverABatchIsNow(t *testing.T) {
	for _, now := range []int64{1, 3, 4, 9} {
		t.Run(fmt.Sprintf("a batch of %d", now), func(t *testing.T) {
			on(t, func(t *testing.T, p *part) {
				p.produce(p.fresh(4)...)
				p.makeDue()
				first := batches(p.claim("t1"))
				p.release("t1", 0, 1)
				p.batch = now
				p.makeDue()
				p.same("batches", batches(p.claim("t2")), first)
				p.lawful()
			})
		})
	}
}

// Redis tells no sizes before it reads, so claims go by the largest entry that
// the partition ever held, or 4 KiB.
func TestClaimIsBoundedInBytes(t *testing.T) {
	for name, row := range map[string]struct{ size, entry, want int }{
		"one entry always":                  {1, 1000, 1},
		"less than an entry may be":         {4095, 1000, 1},
		"room for one that may be 4 KiB":    {4096, 1000, 1},
		"room for a batch, not for another": {2 * 4096, 1000, 4},
		"room for another batch":            {3*4096 + 512, 1000, 8},
		"room for all":                      {12 * 4096, 1000, 12},
		"large entries, one fits":           {100_000, 60_000, 1},
		"large entries, two fit":            {120_000, 60_000, 2},
		"large entries, a batch":            {5 * 60_000, 60_000, 4},
		"large entries, room for all":       {12 * 60_000, 60_000, 12},
		"an entry larger than a call reads": {1 << 20, 5 << 18, 1},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(t *testing.T, p *part) {
				p.capacity, p.batches, p.bytes = 100, 3, int64(row.size)
				entries := p.fresh(12)
				for i, e := range entries {
					entries[i] = e + strings.Repeat("x", row.entry-len(e))
				}
				p.produce(entries...)
				got := slices.Concat(batches(p.claim("t1"))...)
				if !slices.Equal(got, entries[:len(got)]) || len(got) != row.want {
					t.Errorf("got %d entries, want %d", len(got), row.want)
				}
				p.same("range", p.seq("to")-p.seq("from"), row.want)
			})
		})
	}
}

func TestClaimBoundsTheStaleEntriesOfOneCall(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.capacity = 10_000
		p.produce(p.aged(5000, 200_000)...)
		fresh := p.fresh(1)
		p.produce(fresh...)
		var calls, dropped int64
		for {
			reply := p.claim("t1")
			n := reply[2].(int64)
			if n > 1100 {
				t.Fatalf("one call dropped %d stale entries", n)
			}
			calls, dropped = calls+1, dropped+n
			p.lawful()
			if reply[0] == int64(2) {
				p.same("batch", batches(reply), [][]string{fresh})
				break
			}
			p.same("due", p.due(), reply[1])
			p.same("token", p.field("token"), "")
		}
		p.same("dropped", dropped, 5000)
		p.same("calls", calls, 5)
		p.ledgerIs(map[string]int64{"accepted": 5001, "expired": 5000})
	})
}

func TestClaimBoundsTheStaleBytesOfOneCall(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.capacity = 10_000
		entries := p.aged(200, 200_000)
		for i := range entries {
			entries[i] += strings.Repeat("x", 32<<10)
		}
		p.produce(entries...)
		if n := p.claim("t1")[2].(int64); n < 32 || n > 128 {
			t.Errorf("dropped %d entries of 32 KiB in one call, want about 1 MiB of them", n)
		}
		p.lawful()
	})
}

func TestClaimRejectsBadArguments(t *testing.T) {
	on(t, func(t *testing.T, p *part) {
		p.produce(p.fresh(10)...)
		p.rejectsBadArgs(lua.Claim, p.keys(), p.claimArgs("t1"), nil, 2, 3, 4, 5, 6)
		for _, token := range []string{"", "t1", ".t1", "0.t1", "-5.t1", "15000"} {
			argv := p.claimArgs("t1")
			argv[0] = token
			p.rejects("ERR claim: bad arguments", lua.Claim, p.keys(), argv...)
		}
	})
}

func TestClaimRejectsForeignValuesWhole(t *testing.T) {
	rejectsForeign(t, states, lua.Claim, func(p *part) ([]string, []any) {
		if p.due() != -1 {
			p.makeDue()
		}
		return p.keys(), p.claimArgs("t9")
	})
}

// counted is a script that keeps how many bytes it reads, in the key beside its first.
func counted(s *lua.Script) *lua.Script {
	return &lua.Script{Name: s.Name, Header: s.Header, Source: `
local real, read = redis, 0
local function count(reply)
  for i = 1, type(reply) == 'table' and #reply or 0 do
    read = read + (type(reply[i]) == 'string' and #reply[i] or 0)
  end
  real.call('SET', KEYS[1] .. ':read', read)
  return reply
end
local redis = {
  call = function(...) return count(real.call(...)) end,
  pcall = function(...) return count(real.pcall(...)) end,
  error_reply = real.error_reply,
}
` + s.Source}
}

func TestClaimOfManyPartitionsIsBoundedInBytes(t *testing.T) {
	const room = 1 << 20
	for name, row := range map[string]struct{ stale, fresh, size int }{
		"4 KiB":                      {0, 64, 4 << 10},
		"64 KiB":                     {0, 8, 64 << 10},
		"1 MiB":                      {0, 2, 1 << 20},
		"4 KiB behind stale ones":    {4, 64, 4 << 10},
		"64 KiB behind a stale one":  {1, 8, 64 << 10},
		"4 KiB, the batch all stale": {8, 64, 4 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			several(t, 16, func(t *testing.T, g group) {
				p := g[0]
				p.capacity, p.maxActive, p.bytes, p.batches = 100, 16, room, 16
				for _, q := range g {
					q.capacity, q.maxActive = p.capacity, p.maxActive
					g := group{q}
					if row.stale > 0 {
						g.produce(q.aged(row.stale, 200_000))
					}
					for range row.fresh {
						g.produce(q.large(1, row.size))
					}
				}
				g.makeDue()
				keys, argv := g.claimCall("t1")
				reply := p.must(counted(lua.Claim), keys, argv...)
				p.same("the first has entries", len(claimAnswers(reply)[0]) > 5, true)
				read, _ := p.c.Get(context.Background(), p.ready+":read").Int()
				p.do("del", p.ready+":read")
				// What it may read, the one entry that it always may, and names and numbers; stale
				// entries are read on in steps of 64 entries or as much as a call may read.
				limit := room + row.size + 64<<10
				if row.stale > 0 {
					limit += min(64*row.size, room)
				}
				if read > limit {
					t.Errorf("one call read %d bytes, want at most %d", read, limit)
				}
				g.lawful()
			})
		})
	}
}
