-- repair: mend one partition for the janitor, and drop what went stale in it.
--
-- Mends: a list the active set does not know, a member without a list, a list
-- without its hash, counts that other hands changed, and a due time that a
-- clock stepping back left too far ahead. Stale entries are dropped only where
-- nobody holds a lease, so partitions that no drainer looks at age honestly.
--
-- KEYS[1] list      entries of the partition, oldest first
-- KEYS[2] zset      active partitions of the shard by due time, ms
-- KEYS[3] hash      the partition's sequences and range
-- KEYS[4] hash      the shard's ledger
-- ARGV[1] string    partition name, the member of KEYS[2]
-- ARGV[2] ms        max age of an entry
-- ARGV[3] ms        a due time further ahead than this is wrong; but that of a lease may be
--                   ahead by its length, that of a range which waits for a retry by the max age
-- RETURNS {mended, now, expired}  mended 1 or 0; stale entries dropped
--
-- USES whole, int, time, die, reconcile, open, drop_stale
local q, ready, m, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local partition = ARGV[1]
local max_age, ahead = whole(ARGV[2], 1), whole(ARGV[3], 0)
if not (max_age and ahead) then
  return redis.error_reply('ERR repair: bad arguments')
end

local now, now_us = time()
local due = tonumber(redis.call('ZSCORE', ready, partition))
local before = redis.call('LLEN', q)
local span = redis.call('HMGET', m, 'head', 'tail')
local first, last = tonumber(span[1]), tonumber(span[2])
local mended = 0
if before == 0 and not due and not (span[1] or span[2]) then
  return { mended, now, 0 } -- it ended since the janitor saw it
end
if before == 0 or not first or not last or last - first ~= before then
  mended = 1
end
local p = open(q, ready, m, ledger, partition, due, now_us)
if not p then
  return { mended, now, 0 }
end

local most = ahead
if p.token then
  most = math.max(ahead, p.lease)
elseif p.to then
  most = math.max(ahead, max_age)
end
if not due or due > now + most then
  -- Whoever may hold the lease keeps it for as long as it was to last.
  mended, due = 1, p.token and now + p.lease or now
  redis.call('ZADD', ready, int(due), partition)
end
if p.token and due > now then
  return { mended, now, 0 }
end
local head, expired = drop_stale(q, m, ledger, p.head, now - max_age)
if head == p.tail then
  die(ready, m, ledger, partition, p.tail)
end
return { mended, now, expired }
