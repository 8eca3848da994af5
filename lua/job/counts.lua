-- counts: how many jobs of each queue are in which state; writes nothing.
--
-- delayed and leased jobs are known for the shard, not for each queue. So those of a
-- queue are counted among the members of one of the two zsets, where it has few enough.
--
-- KEYS[1] zset      leases by deadline, ms
-- KEYS[2] zset      delayed jobs by due time, ms
-- KEYS[3] hash      tombstones, by queue
-- KEYS[4..] mixed   of each queue: list of ready, hash of jobs, zset of dead
-- ARGV[1] int       members of a zset to read, at most
-- ARGV[2..] string  names of the queues
-- RETURNS {now, ready, delayed, leased, dead, oldest, ...}  for each queue; oldest: sequence of the oldest ready job, or ''. Where
--                   the members are too many, delayed is -1 and leased is the sum of both
--
-- USES whole, time
local limit = whole(ARGV[1], 0)
if not limit or #KEYS ~= 3 * #ARGV then
  return redis.error_reply('ERR counts: bad arguments')
end
local now = time()
local leases, delayed = redis.call('ZCARD', KEYS[1]), redis.call('ZCARD', KEYS[2])
local fewer = leases <= delayed and KEYS[1] or KEYS[2]
local by_queue
if math.min(leases, delayed) <= limit then
  by_queue = {}
  for _, member in ipairs(redis.call('ZRANGE', fewer, 0, -1)) do
    local queue = string.match(member, ' (.*)$') or ''
    by_queue[queue] = (by_queue[queue] or 0) + 1
  end
end
local result = { now }
for i = 2, #ARGV do
  local r, j, d = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local ready = math.max(0, redis.call('LLEN', r) - (tonumber(redis.call('HGET', KEYS[3], ARGV[i]) or 0) or 0))
  local dead = redis.call('ZCARD', d)
  local both = math.max(0, redis.call('HLEN', j) - ready - dead)
  local a, b = -1, both
  if by_queue then
    local some = math.min(both, by_queue[ARGV[i]] or 0)
    a, b = both - some, some
    if fewer == KEYS[2] then
      a, b = some, both - some
    end
  end
  local oldest = ''
  for x = 0, 199 do
    local seq = redis.call('LINDEX', r, x)
    if not seq then
      break
    elseif redis.call('HEXISTS', j, seq) == 1 then
      oldest = seq
      break
    end
  end
  local m = #result
  result[m + 1], result[m + 2], result[m + 3], result[m + 4], result[m + 5] = ready, a, b, dead, oldest
end
return result
