-- resume: end the pause of a partition, or of the whole namespace, in one shard.
--
-- A partition is due now, unless it is leased: claim has put a paused one off. The
-- first write is HDEL, which a full store does not reject.
--
-- KEYS[1] zset      active partitions of the shard by due time, ms
-- KEYS[2] hash      the shard's ledger
-- KEYS[3..] hash    of the partition: its sequences and range; none = the whole namespace
-- ARGV[1] string    name of the partition, the member of KEYS[1]; * = the whole namespace
-- RETURNS {now, 0}  was not paused; nothing was written
-- RETURNS {now, 1}  resumed
--
-- USES whole, time
local ready, ledger, m, name = KEYS[1], KEYS[2], KEYS[#KEYS], ARGV[1]
local one = #KEYS == 3
if name == '' or #KEYS > 3 or one == (name == '*') then
  return redis.error_reply('ERR resume: bad arguments')
end

local now = time()
local field = 'pause:' .. name
local v = redis.call('HMGET', ledger, 'paused', field)
if not v[2] then
  return { now, 0 }
end
local due = one and tonumber(redis.call('ZSCORE', ready, name) or nil)
local leased = one and redis.call('HEXISTS', m, 'token') == 1
local left = (whole(v[1], 0) or 0) - 1
if left > 0 then
  redis.call('HDEL', ledger, field)
  redis.call('HSET', ledger, 'paused', left)
else
  redis.call('HDEL', ledger, field, 'paused')
end
if due and due > now and not leased then
  redis.call('ZADD', ready, now, name)
end
return { now, 1 }
