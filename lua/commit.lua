-- commit: settle the oldest part of a leased range, once.
--
-- Only the holder of the token commits, and only from where the range stands,
-- so repeating a commit whose outcome is unknown counts nothing twice. Entries
-- that an overflow evicted while they were out are taken back from evicted:
-- reclaimed. The commit that gives entries up writes their dead letters.
--
-- KEYS[1] list      entries of the partition, oldest first
-- KEYS[2] zset      active partitions of the shard by due time, ms
-- KEYS[3] hash      the partition's sequences and range
-- KEYS[4] hash      the shard's ledger
-- KEYS[5] list      the shard's dead letters, oldest first
-- ARGV[1] string    partition name, the member of KEYS[2]
-- ARGV[2] string    token of the lease
-- ARGV[3] seq       first sequence to settle
-- ARGV[4] seq       one after the last sequence to settle
-- ARGV[5] int       of these delivered
-- ARGV[6] int       of these expired
-- ARGV[7] int       of these dead; the three add up
-- ARGV[8] int       entries that make a full batch, at most the capacity
-- ARGV[9] ms        linger
-- ARGV[10] int      dead letters kept, at most
-- ARGV[11..] bytes  dead letters, as many as are dead
-- RETURNS {0, now}          gone: the token does not hold the partition
-- RETURNS {1, now}          settled
-- RETURNS {2, now}          settled before; nothing was written
-- RETURNS {3, now, from}    refused: the range stands at from
--
-- USES whole, int, time, die, reconcile, open, rearm
local q, ready, m, ledger, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local partition, token = ARGV[1], ARGV[2]
local lo, hi = whole(ARGV[3], 0), whole(ARGV[4], 0)
local counts = { delivered = whole(ARGV[5], 0), expired = whole(ARGV[6], 0), dead = whole(ARGV[7], 0) }
local full, linger, most_dead = whole(ARGV[8], 1), whole(ARGV[9], 0), whole(ARGV[10], 1)
if not (lo and hi and counts.delivered and counts.expired and counts.dead and full and linger and most_dead)
  or lo >= hi or counts.delivered + counts.expired + counts.dead ~= hi - lo
  or counts.dead ~= #ARGV - 10 then
  return redis.error_reply('ERR commit: bad arguments')
end

local now, now_us = time()
if token == '' or redis.call('HGET', m, 'token') ~= token then
  return { 0, now }
end
local known = redis.call('ZSCORE', ready, partition)
redis.call('LLEN', dead)
local p = open(q, ready, m, ledger, partition, known, now_us)
if not p or not p.from or not p.to then
  return { 0, now }
elseif hi <= p.from then
  return { 2, now }
elseif lo ~= p.from or hi > p.to then
  return { 3, now, p.from }
end

local head = math.max(p.head, hi)
local reclaimed = math.max(0, math.min(p.head - lo, hi - lo))
if head > p.head then
  redis.call('LTRIM', q, head - p.head, -1)
  redis.call('HSET', m, 'head', int(head))
end
for class, n in pairs(counts) do
  if n > 0 then
    redis.call('HINCRBY', ledger, class, int(n))
  end
end
if reclaimed > 0 then
  redis.call('HINCRBY', ledger, 'reclaimed', int(reclaimed))
end
if counts.expired > 0 then
  redis.call('HINCRBY', m, 'expired', int(counts.expired))
end
redis.call('HINCRBY', m, 'settled', int(counts.delivered + counts.dead))

for i = 11, #ARGV do
  redis.call('RPUSH', dead, ARGV[i])
end
if counts.dead > 0 then
  local over = redis.call('LLEN', dead) - most_dead
  if over > 0 then
    redis.call('LTRIM', dead, int(over), -1)
    redis.call('HINCRBY', ledger, 'dead_evicted', int(over))
  end
end

if hi == p.to then
  redis.call('HDEL', m, 'from', 'to', 'cuts', 'attempt', 'token', 'lease')
  -- What remains came after the claim, which the lease's deadline tells.
  local since = known and math.min(now, tonumber(known) - p.lease) or now
  rearm(ready, m, ledger, partition, head, p.tail, full, now, since, linger)
else
  redis.call('HSET', m, 'from', int(hi))
end
return { 1, now }
