package lua_test

import (
	"context"
	"testing"

	"github.com/spillway-io/spillway/lua"
)

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
