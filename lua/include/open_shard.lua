-- open_shard: read what a call needs of its shard, before anything is written:
-- the clock and the ledger. A foreign value there refuses the call whole.
-- Returns a table, or nil and an error: now (ms), now_us; was and add (totals of
-- the ledger, and what this call adds to them); mark (high-water mark of
-- sequences); due, gone and empty: see close_shard; wrote: see trim_first; stale
-- and stale_bytes: see drop_stale.
local function open_shard(ledger)
  local now, now_us = time()
  local v = redis.call('HMGET', ledger, 'high_water', 'accepted', 'delivered', 'evicted', 'reclaimed',
    'expired', 'dead', 'lost', 'dead_evicted', 'dead_bytes', 'dead_count')
  for i = 1, 11 do
    v[i] = tonumber(v[i] or 0)
    if not v[i] or v[i] % 1 ~= 0 or v[i] <= -9007199254740992 or v[i] >= 9007199254740992 then
      return nil, redis.error_reply('ERR the ledger holds a foreign value')
    end
  end
  return {
    now = now, now_us = now_us, mark = v[1], due = {}, gone = {}, empty = {}, wrote = false,
    stale = 0, stale_bytes = 0,
    was = {
      high_water = v[1], accepted = v[2], delivered = v[3], evicted = v[4], reclaimed = v[5],
      expired = v[6], dead = v[7], lost = v[8], dead_evicted = v[9], dead_bytes = v[10], dead_count = v[11],
    },
    add = {
      accepted = 0, delivered = 0, evicted = 0, reclaimed = 0,
      expired = 0, dead = 0, lost = 0, dead_evicted = 0, dead_bytes = 0, dead_count = 0,
    },
  }
end
