-- trim: drop the oldest entries of a partition in a fenced shard, which has newer ones elsewhere.
--
-- So a partition that lies in two layouts keeps its newest entries, as many as its capacity. They
-- count as evicted, or as delivered where the sink has accepted them. One that is leased is left
-- alone: its holder may be about to write what it has.
--
-- KEYS[1] zset      active partitions of the shard by due time, ms
-- KEYS[2] hash      the shard's ledger
-- KEYS[3] list      the partition's entries
-- KEYS[4] hash      its sequences and range
-- ARGV[1] string    its name, the member of KEYS[1]
-- ARGV[2] int       layout of the shard
-- ARGV[3] int       entries that it keeps at most
-- RETURNS {now, n}  n were dropped
--
-- USES whole, time, end_lease, open_shard, close_shard, trim_first, plausible, read_meta, count_done, keep_done, write_done, reconcile, create_meta, adopt, end_partition
local ready, ledger, q, m, name = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local own, keep = whole(ARGV[2], 1), whole(ARGV[3], 0)
if not (own and keep) or name == '' then
  return redis.error_reply('ERR trim: bad arguments')
end

local shard, rejected = open_shard(ledger)
if rejected then
  return rejected
end
local now = shard.now
local due = tonumber(redis.call('ZSCORE', ready, name) or nil)
local length = redis.call('LLEN', q)
local p, foreign = read_meta(m)
if foreign then
  return redis.error_reply(foreign)
end
local n = length - keep
if n <= 0 or not due or shard.fence <= own or p.token and due > now then
  return { now, 0 }
end
trim_first(shard, q)
if p.head then
  reconcile(shard, p, length, false)
else
  adopt(shard, m, p, length, true)
end
p.head = p.head + n
shard.add.evicted = shard.add.evicted + n
reconcile(shard, p, keep, false) -- what of them the sink has accepted is delivered
if p.head == p.tail then
  end_partition(shard, name, q, m, p.tail)
else
  redis.call('LTRIM', q, n, -1)
  end_lease(m)
  redis.call('HSET', m, 'head', p.head, 'tail', p.tail, 'settled', p.settled, 'expired', p.expired)
  write_done(m, p.done)
end
close_shard(ready, ledger, shard)
return { now, n }
