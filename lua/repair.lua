-- repair: repair partitions of one shard for the janitor, and expire their stale entries.
--
-- It repairs a list that the active set does not know, a member without a list, a
-- list without its hash, counts that something other than Spillway changed, and a due
-- time that a clock stepping back left too far ahead. It expires stale entries only
-- where nobody holds a lease, so entries expire in partitions that nobody drains, too.
-- Every partition has its own answer, in the order of the call.
--
-- KEYS[1] zset      active partitions of the shard by due time, ms
-- KEYS[2] hash      the shard's ledger
-- KEYS[3..] list,hash  of each partition: its entries, oldest first; its sequences and range
-- ARGV[1] ms        max age of an entry
-- ARGV[2] ms        a due time further ahead than this is wrong; but the due time of a lease may be ahead
--                   by the lease's length, that of a range which waits for a retry or of a paused partition by the max age
-- ARGV[3..] string  of each partition: its name, the member of KEYS[1]; each name once
-- RETURNS {now, answer...}     an answer for each partition, the values of one of these:
-- RETURNS repaired, expired    1 or 0; stale entries dropped that the sink had not accepted
-- RETURNS text                 rejected, with the error of Redis; nothing was written
--
-- USES whole, time, lease_of, end_lease, open_shard, close_shard, read_pauses, trim_first, plausible, read_meta, count_done, keep_done, write_done, reconcile, create_meta, adopt, end_partition, is_stale, drop_stale
local ready, ledger = KEYS[1], KEYS[2]
local max_age, ahead = whole(ARGV[1], 1), whole(ARGV[2], 0)
local partitions = #ARGV - 2
if not (max_age and ahead) or partitions < 1 or #KEYS ~= 2 + 2 * partitions then
  return redis.error_reply('ERR repair: bad arguments')
end

local shard, rejected = open_shard(ledger)
if rejected then
  return rejected
end
local scores = redis.call('ZMSCORE', ready, unpack(ARGV, 3))
local _, paused = read_pauses(shard, ledger, ARGV, 3)
local now = shard.now

-- repair returns repaired and expired, or nil and the error of Redis.
local function repair(name, q, m, due, is_paused)
  local p, foreign = read_meta(m)
  if foreign then
    return nil, foreign
  end
  local length = redis.pcall('LLEN', q)
  if type(length) == 'table' then
    return nil, length.err
  end
  if length == 0 and not due and not p.there then
    return 0, 0 -- the partition ended after the janitor had found it
  end
  local repaired = 0
  if length == 0 or not p.head or p.tail - p.head ~= length then
    repaired = 1
  end
  local changed
  local leased = p.token and (not due or due > now)
  if p.done and p.token and not leased then
    -- The lease lapsed. What the sink had accepted is counted here, so the former holder
    -- must not count it again.
    trim_first(shard, q)
    end_lease(m)
    p.token, p.from = nil, nil
  end
  if p.head then
    changed = reconcile(shard, p, length, leased)
  elseif length > 0 then
    trim_first(shard, q)
    adopt(shard, m, p, length, due)
  end
  if length == 0 then
    end_partition(shard, name, q, m, p.tail or 0)
    return repaired, 0
  end

  local furthest = ahead
  if p.token then
    furthest = math.max(ahead, lease_of(p.token))
  elseif p.to or is_paused then
    furthest = math.max(ahead, max_age)
  end
  local rescore = not due or due > now + furthest
  if rescore then
    -- A holder keeps the lease for its full length.
    repaired, due = 1, p.token and now + lease_of(p.token) or now
  end
  local dropped, expired = 0, 0
  if not (p.token and due > now) then
    local step = p.head and math.max(1, math.floor(65536 / (p.big or 4096))) or 1
    local _
    _, dropped, expired = drop_stale(shard, q, p, redis.call('LRANGE', q, 0, 0), math.min(64, 16 * step), now - max_age)
    if p.head == p.tail then
      end_partition(shard, name, q, m, p.tail)
      return repaired, expired
    elseif dropped > 0 then
      end_lease(m)
    end
  end
  if changed or dropped > 0 then
    trim_first(shard, q)
    redis.call('HSET', m, 'head', p.head, 'tail', p.tail, 'settled', p.settled, 'expired', p.expired)
    if p.from and dropped == 0 then
      redis.call('HSET', m, 'from', p.from)
    end
    write_done(m, p.done)
  end
  if rescore then
    trim_first(shard, q)
    shard.due[#shard.due + 1] = due
    shard.due[#shard.due + 1] = name
  end
  return repaired, expired
end

local result = { now }
for i = 1, partitions do
  local repaired, other = repair(ARGV[2 + i], KEYS[1 + 2 * i], KEYS[2 + 2 * i], tonumber(scores[i] or nil), paused[i])
  result[#result + 1] = repaired or other
  result[#result + 1] = repaired and other or nil
end
close_shard(ready, ledger, shard)
return result
