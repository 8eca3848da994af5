-- claim: lease the oldest entries of one partition, or take them for good.
--
-- Only a partition that is due is given out: one that another drainer holds is
-- due when its lease lapses. Stale entries at the old end are dropped first. A
-- range that was presented before and not settled is presented again along the
-- same cuts; else the lease covers one batch, and further ones while they are full.
-- The entries stay in the list until they are settled: a lease is fields in a
-- hash. Under at-most-once delivery they are settled here and leave the list.
--
-- KEYS[1] list      entries of the partition, oldest first
-- KEYS[2] zset      active partitions of the shard by due time, ms
-- KEYS[3] hash      the partition's sequences and range
-- KEYS[4] hash      the shard's ledger
-- ARGV[1] string    partition name, the member of KEYS[2]
-- ARGV[2] string    token of the lease, never used before; empty = at-most-once
-- ARGV[3] int       entries a batch, at most
-- ARGV[4] int       batches a lease, at most
-- ARGV[5] bytes     size of a lease, at most, though never less than one entry
-- ARGV[6] ms        max age of an entry
-- ARGV[7] ms        how long the lease lasts
-- ARGV[8] ms        safety TTL of the list
-- ARGV[9] int       entries that make a full batch, at most the capacity
-- ARGV[10] ms       linger
-- RETURNS {0, now, due}                          not due before that time; due 0 = not active
-- RETURNS {1, now, expired}                      no lease: everything, or all that one call may drop, was stale
-- RETURNS {2, now, expired, from, attempt, batch...}  leased (or taken): sequence of the first entry,
--                                                number of this presentation, and an array of entries a batch
--
-- USES whole, int, time, die, reconcile, open, drop_stale, rearm
local q, ready, m, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local partition, token = ARGV[1], ARGV[2]
local batch, batches, size = whole(ARGV[3], 1), whole(ARGV[4], 1), whole(ARGV[5], 1)
local max_age, lease, ttl = whole(ARGV[6], 1), whole(ARGV[7], 1), whole(ARGV[8], 1)
local full, linger = whole(ARGV[9], 1), whole(ARGV[10], 0)
if not (batch and batches and size and max_age and lease and ttl and full and linger) then
  return redis.error_reply('ERR claim: bad arguments')
end

local now, now_us = time()
local due = tonumber(redis.call('ZSCORE', ready, partition))
if not due then
  return { 0, now, 0 }
elseif due > now then
  return { 0, now, due }
end

local p = open(q, ready, m, ledger, partition, true, now_us)
if not p then
  return { 1, now, 0 }
end
local head, expired, more = drop_stale(q, m, ledger, p.head, now - max_age)
if head == p.tail then
  die(ready, m, ledger, partition, p.tail)
  return { 1, now, expired }
elseif more then
  redis.call('ZADD', ready, int(now), partition)
  return { 1, now, expired }
end

local result = { 2, now, expired, head, 1 }
local cuts = {}
local to = head
if p.to and p.to > head then
  result[5] = p.attempt + 1
  for cut in string.gmatch(p.cuts, '%d+') do
    cut = tonumber(cut)
    if cut > to then
      result[#result + 1] = redis.call('LRANGE', q, to - head, cut - head - 1)
      cuts[#cuts + 1] = int(cut)
      to = cut
    end
  end
else
  local bytes = 0
  while #cuts < batches and to < p.tail and bytes < size do
    local chunk = redis.call('LRANGE', q, to - head, to - head + batch - 1)
    if #cuts > 0 and #chunk < full then
      break
    end
    local n = #chunk
    for i = 1, n do
      bytes = bytes + #chunk[i]
      if bytes > size and to + i - 1 > head then
        for j = i, n do
          chunk[j] = nil
        end
        break
      end
    end
    if #chunk == 0 then
      break
    end
    to = to + #chunk
    result[#result + 1] = chunk
    cuts[#cuts + 1] = int(to)
  end
end

if token == '' then
  redis.call('LTRIM', q, to - head, -1)
  redis.call('HINCRBY', ledger, 'delivered', int(to - head))
  redis.call('HINCRBY', m, 'settled', int(to - head))
  redis.call('HSET', m, 'head', int(to))
  redis.call('HDEL', m, 'from', 'to', 'cuts', 'attempt', 'token', 'lease')
  rearm(ready, m, ledger, partition, to, p.tail, full, now, now, linger)
else
  redis.call('HSET', m, 'from', int(head), 'to', int(to), 'cuts', table.concat(cuts, ' '),
    'attempt', int(result[5]), 'token', token, 'lease', int(lease))
  redis.call('ZADD', ready, int(now + lease), partition)
end
redis.call('PEXPIRE', q, ttl)
return result
