-- open_shard: read the clock and the ledger of the shard, before anything is written.
-- A foreign value in the ledger rejects the whole call. Returns nil and an error, or
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
    paused = v[12], stale = 0, stale_bytes = 0,
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

-- close_shard: write what the partitions of a call share, with one command each.
-- ended_names are the members that leave the active set, ended_keys the keys of
-- partitions without entries, due holds score, member, ... for the active set; then
-- come the totals of the ledger, and its field keys where the call counted one. The
-- commands that free memory come first: a full store does not reject those.
local function close_shard(ready, ledger, shard)
  if #shard.ended_names > 0 then
    redis.call('ZREM', ready, unpack(shard.ended_names))
    redis.call('DEL', unpack(shard.ended_keys))
  end
  if #shard.due > 0 then
    redis.call('ZADD', ready, unpack(shard.due))
  end
  local totals = {}
  for class, n in pairs(shard.add) do
    if n ~= 0 then
      totals[#totals + 1] = class
      totals[#totals + 1] = shard.was[class] + n
    end
  end
  if shard.high_water > shard.was.high_water then
    totals[#totals + 1] = 'high_water'
    totals[#totals + 1] = shard.high_water
  end
  if shard.keys then
    totals[#totals + 1] = 'keys'
    totals[#totals + 1] = shard.keys
  end
  if #totals > 0 then
    redis.call('HSET', ledger, unpack(totals))
  end
end

-- read_keys: the idempotency keys of a shard that are kept, from the field keys of its
-- ledger. Returns a table of their numbers by the time that each ends to count, in s, and
-- the sum. A foreign value counts nothing.
local function read_keys(text, now)
  local ends, total = {}, 0
  for at, n in string.gmatch(text or '', '(%d+) (%d+)') do
    at, n = tonumber(at), tonumber(n)
    if at * 1000 > now then
      ends[at], total = n, total + n
    end
  end
  return ends, total
end

-- key_end: until when a key counts that ends at some ms and was kept for keep ms: the next multiple of
-- a power of two, in s: for as long as Redis keeps it, and up to a quarter, or 1 s,
-- longer. So there are few different ends.
local function key_end(at, keep)
  local step = 1
  while step * 8000 <= keep do
    step = step * 2
  end
  return math.ceil(at / 1000 / step) * step
end

-- count_key: count one key that is kept for some ms.
local function count_key(ends, now, keep)
  -- WITH key_end
  local at = key_end(now + keep, keep)
  ends[at] = (ends[at] or 0) + 1
end

-- keys_text: what read_keys reads.
local function keys_text(ends)
  local all = {}
  for at, n in pairs(ends) do
    all[#all + 1] = int(at) .. ' ' .. int(n)
  end
  return table.concat(all, ' ')
end

-- read_pauses: which partitions of a call are paused; argv holds their names from
-- position first on. Returns whether the whole namespace is, and a table that is true
-- at i where the i-th partition is. It reads nothing while nothing of the shard is paused.
local function read_pauses(shard, ledger, argv, first)
  local paused = {}
  if not shard.paused then
    return false, paused
  end
  local fields = { 'pause:*' }
  for i = first, #argv do
    fields[#fields + 1] = 'pause:' .. argv[i]
  end
  local v = redis.call('HMGET', ledger, unpack(fields))
  for i = 2, #fields do
    paused[i - 1] = v[i] and true
  end
  return v[1] and true, paused
end

