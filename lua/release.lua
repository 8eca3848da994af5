-- release: give a lease back; what is left of its range waits, and is presented
-- again along the same cuts.
--
-- KEYS[1] list      entries of the partition, oldest first
-- KEYS[2] zset      active partitions of the shard by due time, ms
-- KEYS[3] hash      the partition's sequences and range
-- ARGV[1] string    partition name, the member of KEYS[2]
-- ARGV[2] string    token of the lease
-- ARGV[3] ms        how long it waits
-- ARGV[4] int       presentations made; the next is one more. -1 = this one did not take place
-- RETURNS {0, now}  gone: the token does not hold the partition
-- RETURNS {1, now}  released
--
-- USES whole, int, time
local q, ready, m = KEYS[1], KEYS[2], KEYS[3]
local partition, token = ARGV[1], ARGV[2]
local delay, attempt = whole(ARGV[3], 0), whole(ARGV[4], -1)
if not (delay and attempt) then
  return redis.error_reply('ERR release: bad arguments')
end

local now = time()
local held = redis.call('HMGET', m, 'token', 'attempt')
if token == '' or held[1] ~= token then
  return { 0, now }
end
if attempt == -1 then
  attempt = math.max(0, tonumber(held[2] or '0') - 1)
end
redis.call('ZSCORE', ready, partition)
redis.call('LLEN', q)
redis.call('LTRIM', q, 0, -1)
redis.call('HDEL', m, 'token', 'lease', 'from')
redis.call('HSET', m, 'attempt', int(attempt))
redis.call('ZADD', ready, int(now + delay), partition)
return { 1, now }
