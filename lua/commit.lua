-- commit: settle the oldest part of leased ranges, once, for several partitions of one shard.
--
-- Only the holder of the token can commit, and only from the beginning of the range.
-- So a commit with an unknown outcome can be repeated, and counts nothing twice.
-- Entries that were evicted while they were leased count as reclaimed: they come off
-- the evicted ones. The commit also writes the dead letters of dead entries. Every
-- partition has its own answer, in the order of the call.
--
-- KEYS[1] zset      active partitions of the shard by due time, ms
-- KEYS[2] hash      the shard's ledger
-- KEYS[3..] list,hash  of each partition: its entries, oldest first; its sequences and range. The last key
--                   is the list of the shard's dead letters, oldest first, where the call brings any
-- ARGV[1] int       entries that make a full batch, at most the capacity
-- ARGV[2] ms        linger
-- ARGV[3] int       most dead letters kept
-- ARGV[4] bytes     most bytes of dead letters kept; the newest is kept whatever its size
-- ARGV[5..] bytes   of each partition: its name, the member of KEYS[1], each name once; token of the lease;
--                   first sequence to settle; one after the last; how many of these expired; how many
--                   are dead, the others are delivered; then one dead letter per dead entry
-- RETURNS {now, answer...}  an answer for each partition, the values of one of these:
-- RETURNS 0          gone: the token does not hold the partition
-- RETURNS 1          settled
-- RETURNS 2          settled before; nothing was written
-- RETURNS 3, from    rejected: the range begins at from
-- RETURNS text       rejected, with the error of Redis; nothing was written
--
-- USES whole, time, end_range, open_shard, close_shard, trim_first, plausible, read_meta, count_done, keep_done, write_done, reconcile, create_meta, adopt, end_partition, is_stale
local ready, ledger = KEYS[1], KEYS[2]
local full, linger = whole(ARGV[1], 1), whole(ARGV[2], 0)
local max_dead, max_dead_bytes = whole(ARGV[3], 1), whole(ARGV[4], 1)
local bad = not (full and linger and max_dead and max_dead_bytes)
local commits, letters = 0, 0
local at = 5
while not bad and at <= #ARGV do
  local lo, hi = whole(ARGV[at + 2], 0), whole(ARGV[at + 3], 1)
  local expired, dead = whole(ARGV[at + 4], 0), whole(ARGV[at + 5], 0)
  bad = not (lo and hi and expired and dead) or lo >= hi or expired + dead > hi - lo
  if not bad then
    at = at + 6 + dead
    letters = letters + dead
    commits = commits + 1
  end
end
if bad or commits == 0 or at ~= #ARGV + 1 or #KEYS ~= 2 + 2 * commits + math.min(letters, 1) then
  return redis.error_reply('ERR commit: bad arguments')
end

local shard, rejected = open_shard(ledger)
if rejected then
  return rejected
end
redis.call('ZCARD', ready) -- rejects a foreign value while nothing is written
local now = shard.now
local dead = letters > 0 and KEYS[#KEYS]
local kept = dead and redis.pcall('LLEN', dead) -- a number, or the error of a foreign value
if type(kept) == 'number' and kept ~= shard.was.dead_count then
  -- Something other than Spillway added or removed letters: estimate their size from ten.
  local some = redis.call('LRANGE', dead, 0, 9)
  local bytes = 0
  for i = 1, #some do
    bytes = bytes + #some[i]
  end
  shard.add.dead_bytes = math.floor(bytes / math.max(1, #some) * kept) - shard.was.dead_bytes
  shard.add.dead_count = kept - shard.was.dead_count
end

-- write_letters writes n dead letters from ARGV[first] on, and drops the oldest beyond
-- the bounds: at most 100 more than it writes, so a lowered bound does not block Redis.
local function write_letters(first, n)
  local add = shard.add
  for i = first, first + n - 1 do
    redis.call('RPUSH', dead, ARGV[i])
    add.dead_bytes = add.dead_bytes + #ARGV[i]
  end
  kept = kept + n
  add.dead_count = add.dead_count + n
  for _ = 1, n + 100 do
    if kept <= max_dead and (kept == 1 or shard.was.dead_bytes + add.dead_bytes <= max_dead_bytes) then
      break
    end
    add.dead_bytes = add.dead_bytes - #redis.call('LPOP', dead)
    add.dead_evicted = add.dead_evicted + 1
    add.dead_count = add.dead_count - 1
    kept = kept - 1
  end
end

-- rest_due is when the rest of a partition is due: now when it is a full batch (behind
-- all that are due already, so a busy partition starves no other), otherwise when its
-- oldest entry has waited for the linger.
local function rest_due(q, p)
  if p.tail - p.head >= full or p.big and p.big > 65536 then
    return now
  end
  local oldest = redis.call('LINDEX', q, 0)
  if is_stale(oldest, now - linger) then
    return now
  end
  return math.min(now, tonumber(string.sub(oldest, 1, 13))) + linger
end

local function commit(at, q, m)
  local name, token, lo, hi = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local expired, buried = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  local delivered = hi - lo - expired - buried
  local v = redis.pcall('HMGET', m, 'token', 'head', 'tail', 'from', 'to')
  if v.err then
    return v.err
  elseif token == '' or v[1] ~= token then
    return 0
  end
  local length = redis.pcall('LLEN', q)
  if type(length) == 'table' then
    return length.err
  elseif buried > 0 and type(kept) == 'table' then
    return kept.err
  end
  if ARGV[at + 2] == v[4] and v[4] == v[2] and ARGV[at + 3] == v[5] and v[5] == v[3] and hi - lo == length and buried == 0 then
    -- The path of nearly every commit of small partitions: it settles all entries.
    local add = shard.add
    add.delivered = add.delivered + delivered
    add.expired = add.expired + expired
    end_partition(shard, name, q, m, hi)
    return 1
  end
  local p = read_meta(m)
  if not p.head then
    trim_first(shard, q)
    if length > 0 then
      adopt(shard, m, p, length, redis.call('ZSCORE', ready, name))
    else
      end_partition(shard, name, q, m, 0)
    end
    return 0
  end
  local old_from = p.from
  local changed = reconcile(shard, p, length, true)
  if p.head == p.tail then
    trim_first(shard, q)
    end_partition(shard, name, q, m, p.tail)
    return 0
  end
  local standing = p.from and p.to
  if not standing or hi <= p.from or lo ~= p.from or hi > p.to then
    if changed then
      trim_first(shard, q)
      redis.call('HSET', m, 'head', p.head, 'tail', p.tail, 'settled', p.settled)
      if p.from ~= old_from then
        redis.call('HSET', m, 'from', p.from)
        write_done(m, p.done)
      end
    end
    return not standing and 0 or hi <= p.from and 2 or 3, p.from
  end

  local add = shard.add
  add.delivered = add.delivered + delivered
  add.expired = add.expired + expired
  add.dead = add.dead + buried
  add.reclaimed = add.reclaimed + math.max(0, math.min(p.head - lo, hi - lo))
  local gone = hi - p.head -- entries that leave the list now
  p.head = math.max(p.head, hi)
  local empty = p.head == p.tail
  if gone > 0 and not empty then
    redis.call('LTRIM', q, gone, -1)
    shard.wrote = true
  end
  if buried > 0 then
    trim_first(shard, q)
    write_letters(at + 6, buried)
  end
  if empty then
    end_partition(shard, name, q, m, p.tail)
    return 1
  end
  trim_first(shard, q)
  p.settled = p.settled + delivered + buried
  p.expired = p.expired + expired
  if hi == p.to then
    redis.call('HSET', m, 'head', p.head, 'tail', p.tail, 'settled', p.settled, 'expired', p.expired)
    end_range(m)
    shard.due[#shard.due + 1] = rest_due(q, p)
    shard.due[#shard.due + 1] = name
  else
    redis.call('HSET', m, 'head', p.head, 'tail', p.tail, 'settled', p.settled, 'expired', p.expired, 'from', hi)
    if p.done then
      write_done(m, keep_done(p.done, p.to, hi))
    end
  end
  return 1
end

local result = { now }
at = 5
for i = 1, commits do
  local answer, from = commit(at, KEYS[1 + 2 * i], KEYS[2 + 2 * i])
  result[#result + 1] = answer
  if answer == 3 then
    result[#result + 1] = from
  end
  at = at + 6 + tonumber(ARGV[at + 5])
end
close_shard(ready, ledger, shard)
return result
