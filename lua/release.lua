-- release: end leases of several partitions of one shard; what is left of their
-- ranges waits, and is presented again with the same batch ends.
--
-- The first write is HDEL, which a full store does not reject. Every partition has
-- its own answer, in the order of the call.
--
-- KEYS[1] zset      active partitions of the shard by due time, ms
-- KEYS[2..] hash    of each partition: its sequences and range
-- ARGV[1..] string  of each partition: its name, the member of KEYS[1], each name once; token of the lease; ms
--                   it waits; presentations so far, -1 = the last one did not happen; what the sink has
--                   accepted, one 0 or 1 per entry, the last for the end of the range; empty = keep what is stored
-- RETURNS {now, answer...}  an answer for each partition, one of these:
-- RETURNS 0     gone: the token does not hold the partition
-- RETURNS 1     released
-- RETURNS text  rejected, with the error of Redis; nothing was written
--
-- USES whole, time, end_lease, keep_done, write_done
local ready = KEYS[1]
local partitions = #KEYS - 1
local bad = partitions < 1 or #ARGV ~= 5 * partitions
for at = 1, bad and 0 or #ARGV, 5 do
  if not (whole(ARGV[at + 2], 0) and whole(ARGV[at + 3], -1)) or string.find(ARGV[at + 4], '[^01]') then
    bad = true
  end
end
if bad then
  return redis.error_reply('ERR release: bad arguments')
end

local now = time()
redis.call('ZCARD', ready) -- rejects a foreign value while nothing is written
local due = {}

local function release(name, m, token, delay, attempt, done)
  local held = redis.pcall('HMGET', m, 'token', 'attempt', 'from', 'to')
  if held.err then
    return held.err
  elseif token == '' or held[1] ~= token then
    return 0
  end
  if attempt == -1 then
    attempt = math.max(0, tonumber(held[2] or 1) - 1)
  end
  local from, to = tonumber(held[3]), tonumber(held[4])
  end_lease(m)
  redis.call('HSET', m, 'attempt', attempt)
  if done ~= '' then
    write_done(m, keep_done(done, to, from))
  end
  due[#due + 1] = now + delay
  due[#due + 1] = name
  return 1
end

local result = { now }
for i = 1, partitions do
  local at = 5 * i - 4
  result[i + 1] = release(ARGV[at], KEYS[1 + i], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), ARGV[at + 4])
end
if #due > 0 then
  redis.call('ZADD', ready, unpack(due))
end
return result
