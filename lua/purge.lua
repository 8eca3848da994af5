-- purge: drop the oldest entries of several partitions of one shard, for an operator.
--
-- It drops the entries at the old end that occurred before a given time. They count as
-- evicted, or as delivered where the sink has accepted them; and beside that as purged. A
-- partition that a drainer holds is left alone until its lease ends. Every partition
-- has its own answer, in the order of the call.
--
-- KEYS[1] zset      active partitions of the shard by due time, ms
-- KEYS[2] hash      the shard's ledger
-- KEYS[3..] list,hash  of each partition: its entries, oldest first; its sequences and range
-- ARGV[1] ms        entries that occurred before this time are dropped, malformed ones too; beyond 13 digits: all
-- ARGV[2] int       entries that the call drops at most
-- ARGV[3] bytes     bytes that it reads at most, about; but never less than one entry. Where it drops all, and so
--                   reads none: bytes of entries beyond 4 KiB that it drops, as Redis frees each of these by itself
-- ARGV[4] int       1 = drop them; 0 = count them only, and write nothing
-- ARGV[5] int       entries at the old end that were counted before; 0 where it drops
-- ARGV[6..] string  of each partition: its name, the member of KEYS[1]; each name once
-- RETURNS {now, answer...}  an answer for each partition, the values of one of these:
-- RETURNS 0, dropped        entries dropped, or counted; no further ones at the old end are that old
-- RETURNS 1, dropped        the same, but there may be more: the call has done as much as it may
-- RETURNS 2                 leased; nothing was dropped
-- RETURNS text              rejected, with the error of Redis; nothing was written
--
-- USES whole, time, end_lease, open_shard, close_shard, trim_first, plausible, read_meta, count_done, keep_done, write_done, reconcile, create_meta, adopt, end_partition, is_stale
local ready, ledger = KEYS[1], KEYS[2]
local cutoff, limit, room = whole(ARGV[1], 0), whole(ARGV[2], 1), whole(ARGV[3], 1)
local drop, counted = whole(ARGV[4], 0), whole(ARGV[5], 0)
local partitions = #ARGV - 5
if not (cutoff and limit and room and drop and counted) or drop > 1 or drop == 1 and counted > 0 or partitions < 1
  or #KEYS ~= 2 + 2 * partitions then
  return redis.error_reply('ERR purge: bad arguments')
end

local shard, rejected = open_shard(ledger)
if rejected then
  return rejected
end
shard.was.purged, shard.add.purged = whole(redis.call('HGET', ledger, 'purged') or 0, 0), 0
if not shard.was.purged then
  return redis.error_reply('ERR the ledger holds a foreign value')
end
local scores = redis.call('ZMSCORE', ready, unpack(ARGV, 6))
local result = { shard.now }

-- old_entries returns how many entries at the old end are that old, and whether it stopped
-- because the call has done as much as it may.
local function old_entries(q, length, big)
  local first = math.min(counted, length)
  local n = first
  if cutoff > 9999999999999 then
    local all = math.min(length - n, limit)
    if drop == 1 and big then
      all = math.min(all, room > 0 and math.max(1, math.floor(room / big)) or 0)
      room = room - all * big
    end
    limit = limit - all
    return all, n + all < length
  end
  local step = math.max(1, math.min(64, math.floor(65536 / (big or 4096))))
  while n < length do
    if limit <= 0 or room <= 0 then
      return n - first, true
    end
    local some = redis.call('LRANGE', q, n, n + math.min(step, limit) - 1)
    for i = 1, #some do
      if not is_stale(some[i], cutoff) then
        return n - first, false
      end
      n, limit, room = n + 1, limit - 1, room - #some[i]
    end
  end
  return n - first, false
end

-- purge returns the code and the number of dropped entries, or nil and the error of Redis.
local function purge(name, q, m, due)
  local p, foreign = read_meta(m)
  if foreign then
    return nil, foreign
  end
  local length = redis.pcall('LLEN', q)
  if type(length) == 'table' then
    return nil, length.err
  elseif length == 0 or not due then
    return 0, 0 -- the janitor repairs it first
  elseif p.token and due > shard.now then
    return 2
  end
  local big = p.big
  if not p.head then
    big = 65536 -- the size of the entries of a list without its hash is unknown
  end
  local n, more = old_entries(q, length, big)
  if n == 0 or drop == 0 then
    return more and 1 or 0, n
  end
  trim_first(shard, q)
  if p.head then
    reconcile(shard, p, length, false)
  else
    adopt(shard, m, p, length, true)
  end
  p.head = p.head + n
  shard.add.evicted = shard.add.evicted + n
  shard.add.purged = shard.add.purged + n
  reconcile(shard, p, length - n, false) -- what of them the sink has accepted is delivered
  if p.head == p.tail then
    end_partition(shard, name, q, m, p.tail)
    return 0, n
  end
  redis.call('LTRIM', q, n, -1)
  end_lease(m)
  redis.call('HSET', m, 'head', p.head, 'tail', p.tail, 'settled', p.settled, 'expired', p.expired)
  write_done(m, p.done)
  return more and 1 or 0, n
end

for i = 1, partitions do
  local code, other = purge(ARGV[5 + i], KEYS[1 + 2 * i], KEYS[2 + 2 * i], tonumber(scores[i] or nil))
  result[#result + 1] = code or other
  if code == 0 or code == 1 then
    result[#result + 1] = other
  end
end
close_shard(ready, ledger, shard)
return result
