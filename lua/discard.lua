-- discard: remove dead letters, for an operator.
--
-- KEYS[1] list      dead letters of the shard, oldest first
-- KEYS[2] hash      the shard's ledger
-- ARGV[1..] bytes   of each letter: about which place it has, the oldest has 0; the letter, whole. Redis goes through
--                   the list from the end that is nearer to the place, so of one that is there twice, that one goes
-- RETURNS {now, removed...}  1 or 0 for each letter
--
-- USES whole, time, open_shard
local dead, ledger = KEYS[1], KEYS[2]
local bad = #ARGV == 0 or #ARGV % 2 ~= 0 or #KEYS ~= 2
for i = 1, #ARGV, 2 do
  bad = bad or not whole(ARGV[i], 0)
end
if bad then
  return redis.error_reply('ERR discard: bad arguments')
end

local shard, rejected = open_shard(ledger)
if rejected then
  return rejected
end
local result = { shard.now }
local count, bytes, middle = 0, 0, redis.call('LLEN', dead) / 2
for i = 1, #ARGV, 2 do
  local removed = redis.call('LREM', dead, tonumber(ARGV[i]) < middle and 1 or -1, ARGV[i + 1])
  result[#result + 1] = removed
  count, bytes = count + removed, bytes + removed * #ARGV[i + 1]
end
if count > 0 then
  redis.call('HSET', ledger, 'dead_count', math.max(0, shard.was.dead_count - count),
    'dead_bytes', math.max(0, shard.was.dead_bytes - bytes))
end
return result
