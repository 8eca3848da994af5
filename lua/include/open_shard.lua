-- open_shard: read the clock and the ledger of the shard, before anything is written.
-- A foreign value in the ledger refuses the whole call. Returns nil and an error, or
-- a table:
--   now, now_us              the store's time, in ms and in µs
--   was, add                 totals of the ledger, and what this call adds to them
--   high_water               no sequence of the shard was ever this high or higher
--   paused                   not false while anything of the shard is paused, see read_pauses
--   due, ended_names, ended_keys, keys  see close_shard
--   wrote                    see trim_first
--   stale, stale_bytes       entries dropped by this call, see drop_stale
local function open_shard(ledger)
  local now, now_us = time()
  local v = redis.call('HMGET', ledger, 'high_water', 'accepted', 'delivered', 'evicted', 'reclaimed',
    'expired', 'dead', 'lost', 'dead_evicted', 'dead_bytes', 'dead_count', 'paused')
  for i = 1, 11 do
    v[i] = tonumber(v[i] or 0)
    if not v[i] or v[i] % 1 ~= 0 or v[i] <= -9007199254740992 or v[i] >= 9007199254740992 then
      return nil, redis.error_reply('ERR the ledger holds a foreign value')
    end
  end
  return {
    now = now, now_us = now_us, high_water = v[1], due = {}, ended_names = {}, ended_keys = {}, wrote = false,
    paused = v[12],
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
