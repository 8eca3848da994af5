-- respawn: make the oldest dead letters of a queue ready again, each with one try more, or delete them.
--
-- A respawned job has one try more and a new ttl. Its next attempt is the last one that it may have, so that no
-- holder of an earlier one can settle the lease. A call reads and writes about 1 MiB of jobs, so large ones take
-- several calls.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      leases by deadline, ms
-- KEYS[3] hash      attempts of jobs that were claimed before
-- KEYS[4] zset      queues that have jobs
-- KEYS[5] zset      delayed jobs by due time, ms
-- KEYS[6] hash      tombstones, by queue
-- KEYS[7] list      ready jobs of the queue
-- KEYS[8] hash      its jobs
-- KEYS[9] zset      its dead jobs by the time of death, ms
-- KEYS[10] hash     its callers' ids
-- ARGV[1] string    name of the queue
-- ARGV[2] string    respawn or delete
-- ARGV[3] int       how many, 1 to 100
-- ARGV[4] ms        ttl from now, 0 = for ever
-- ARGV[5] string    beginning of the channels that wake who waits
-- ARGV[6] string    the command that wakes: publish, or spublish in a cluster
-- RETURNS {now, count, left}  jobs respawned or deleted; dead letters of the queue that are left
--
-- USES whole, int, time, foreign, in_pieces, open_ends, open_ledger, close_ledger, check_shard, caller_id, drop_id, drop_errors, forget, usable, wake
local name, verb, count, ttl = ARGV[1], ARGV[2], whole(ARGV[3], 1), whole(ARGV[4], 0)
if #KEYS ~= 10 or #ARGV ~= 6 or not (count and ttl) or count > 100 or verb ~= 'respawn' and verb ~= 'delete' then
  return redis.error_reply('ERR respawn: bad arguments')
end
local ledger, attempts, queues, tombstones = KEYS[1], KEYS[3], KEYS[4], KEYS[6]
local r, j, d, u = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local now = time()
if not usable(r, j, d) then
  return redis.error_reply('WRONGTYPE a key of the queue has another type')
end
local seqs = redis.call('ZRANGE', d, 0, count - 1)
if #seqs == 0 then
  return { now, 0, 0 }
end
local totals, rejected = check_shard(ledger, KEYS[2], attempts, queues, KEYS[5], tombstones)
if not totals then
  return rejected
end
local records, bytes = {}, 0
for x = 1, #seqs do
  if bytes > 1048576 then
    seqs[x] = nil
  else
    records[x] = redis.call('HGET', j, seqs[x])
    bytes = bytes + (records[x] and #records[x] or 0)
  end
end
redis.call('ZREM', d, unpack(seqs))
local counted, back, rewritten, gone = {}, {}, {}, {}
local ends = ttl > 0 and string.format('%013.0f', now + ttl) or '0000000000000'
for x, seq in ipairs(seqs) do
  local tries, rest
  if records[x] then
    tries, rest = string.match(records[x], '^%d+ (%d+)(.*)$')
  end
  if rest and verb == 'respawn' then
    back[#back + 1] = seq
    rewritten[#rewritten + 1] = seq
    rewritten[#rewritten + 1] = ends .. ' ' .. int(tries + 1) .. rest
    counted[#counted + 1] = seq .. ' ' .. name
    counted[#counted + 1] = tries
  else
    gone[#gone + 1] = seq
    local class = rest and 'deleted' or 'lost'
    totals[class] = totals[class] + 1
    if rest then
      drop_id(u, caller_id(records[x]), seq)
    end
  end
end
totals.dead = -#seqs
if #gone > 0 then
  redis.call('HDEL', j, unpack(gone))
  drop_errors(u, gone)
end
if #back > 0 then
  totals.respawned = #back
  redis.call('HSET', j, unpack(rewritten))
  redis.call('HSET', attempts, unpack(counted))
  wake(ARGV[6], ARGV[5], name, redis.call('RPUSH', r, unpack(back)), #back)
end
totals.lost = totals.lost + forget(queues, tombstones, r, j, name)
close_ledger(ledger, totals)
return { now, totals.respawned + totals.deleted, redis.call('ZCARD', d) }
