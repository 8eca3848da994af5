-- produce: append entries to one partition and keep its newest, or change nothing.
--
-- The oldest entries beyond the capacity are evicted. A new partition becomes
-- active, due after the linger; a full batch is due at once, unless a range of
-- the partition is leased or waits for a retry.
--
-- KEYS[1] list      entries of the partition, oldest first
-- KEYS[2] zset      active partitions of the shard by due time, ms
-- KEYS[3] hash      the partition's sequences and range
-- KEYS[4] hash      the shard's ledger
-- KEYS[5] string    optional: result of an idempotent call
-- ARGV[1] string    partition name, the member of KEYS[2]
-- ARGV[2] int       capacity of the partition, in entries
-- ARGV[3] int       entries that make a full batch, at most the capacity
-- ARGV[4] ms        linger
-- ARGV[5] int       active partitions the shard may have
-- ARGV[6] ms        safety TTL of the list
-- ARGV[7] ms        how long KEYS[5] is kept; 0 without KEYS[5]
-- ARGV[8..] bytes   encoded entries, oldest first, 1 or more
-- RETURNS {0, now}                              refused: a new partition too many; nothing was written
-- RETURNS {1, now, accepted, evicted, depth}    appended
-- RETURNS {2, now, accepted, evicted, depth}    the result of the first call under KEYS[5]
--
-- USES whole, int, time, die, reconcile
local q, ready, m, ledger, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local partition = ARGV[1]
local capacity, full, linger = whole(ARGV[2], 1), whole(ARGV[3], 1), whole(ARGV[4], 0)
local most, ttl, keep = whole(ARGV[5], 0), whole(ARGV[6], 1), whole(ARGV[7], seen and 1 or 0)
local first = 8
local k = #ARGV - first + 1
if not (capacity and full and linger and most and ttl and keep) or full > capacity or k < 1 then
  return redis.error_reply('ERR produce: bad arguments')
end

local now, now_us = time()
if seen then
  local result = redis.call('GET', seen)
  if result then
    local accepted, evicted, depth = string.match(result, '^(%d+) (%d+) (%d+)$')
    if not accepted then
      return redis.error_reply('ERR produce: the idempotency key holds a foreign value')
    end
    return { 2, now, tonumber(accepted), tonumber(evicted), tonumber(depth) }
  end
end

-- Reads and checks; nothing is written before the first HINCRBY or HSET below.
local before = redis.call('LLEN', q)
local tail
local born = before == 0
local arm = false
if born then
  local active = redis.call('ZCARD', ready)
  local mark = tonumber(redis.call('HGET', ledger, 'high_water') or '0')
  local v = redis.call('HMGET', m, 'head', 'tail')
  local old_head, old_tail = tonumber(v[1]), tonumber(v[2])
  if old_head and old_tail then
    -- Its entries vanished by other hands. They are lost, and it is born anew.
    redis.call('HINCRBY', ledger, 'lost', int(old_tail - old_head))
    die(ready, m, ledger, partition, old_tail)
    mark = math.max(mark, old_tail)
    active = active - 1
  end
  if active >= most then
    return { 0, now }
  end
  local head = math.max(now_us, mark)
  tail = head + k
  redis.call('HSET', m, 'tail', int(tail), 'head', int(head), 'birth', int(head))
else
  if before < full and before + k >= full then
    -- ZSCORE refuses a foreign value while nothing is written yet.
    redis.call('ZSCORE', ready, partition)
    arm = redis.call('HEXISTS', m, 'to') == 0
  end
  tail = redis.call('HINCRBY', m, 'tail', k)
end

-- A tail of k: the hash was not there, though the list is.
local headless = not born and tail == k
local known = headless and redis.pcall('ZSCORE', ready, partition)

-- The ledger is checked by its own write, the second: the first is undone if
-- it fails. That saves a read on every call.
local counted = known
if type(known) ~= 'table' then
  counted = redis.pcall('HINCRBY', ledger, 'accepted', k)
end
if type(counted) == 'table' and counted.err then
  if born or headless then
    redis.call('DEL', m)
  else
    redis.call('HINCRBY', m, 'tail', -k)
  end
  return counted
end

if headless then
  -- A list without its hash: see open. The active set tells whose entries.
  local mark = tonumber(redis.call('HGET', ledger, 'high_water') or '0')
  local head = math.max(now_us, mark)
  tail = head + before + k
  redis.call('HSET', m, 'tail', int(tail), 'head', int(head), 'birth', int(head))
  if not known then
    redis.call('HINCRBY', ledger, 'accepted', before)
    redis.call('ZADD', ready, int(now), partition)
  end
end

for i = first, #ARGV, 1000 do
  redis.call('RPUSH', q, unpack(ARGV, i, math.min(i + 999, #ARGV)))
end

local evicted = math.max(0, before + k - capacity)
if evicted > 0 then
  -- LPOP copies what it takes into Lua, so more than a handful is trimmed.
  if evicted == 1 then
    redis.call('LPOP', q)
  elseif evicted <= 4 then
    redis.call('LPOP', q, evicted)
  else
    redis.call('LTRIM', q, evicted, -1)
  end
  local head = redis.call('HINCRBY', m, 'head', evicted)
  redis.call('HINCRBY', ledger, 'evicted', evicted)
  -- I1 comes free here: head and tail are both at hand.
  local depth = before + k - evicted
  if tail - head ~= depth then
    reconcile(m, ledger, head, tail, tonumber(redis.call('HGET', m, 'from')), depth)
  end
end

local depth = before + k - evicted
if born then
  redis.call('PEXPIRE', q, ttl)
  redis.call('ZADD', ready, int(depth >= full and now or now + linger), partition)
elseif arm then
  redis.call('ZADD', ready, int(now), partition)
end
if seen then
  redis.call('SET', seen, int(k) .. ' ' .. int(evicted) .. ' ' .. int(depth), 'PX', keep)
end
return { 1, now, k, evicted, depth }
