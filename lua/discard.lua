-- discard: remove dead letters, for an operator.
--
-- KEYS[1] list      dead letters of the shard, oldest first
-- KEYS[2] hash      the shard's ledger
-- ARGV[1..] bytes   the letters, whole; of one that is there twice, the newest goes
-- RETURNS {now, removed...}  1 or 0 for each letter
--
-- USES time, open_shard
local dead, ledger = KEYS[1], KEYS[2]
if #ARGV == 0 or #KEYS ~= 2 then
  return redis.error_reply('ERR discard: bad arguments')
end

local shard, refused = open_shard(ledger)
if refused then
  return refused
end
local result = { shard.now }
local count, bytes = 0, 0
for i = 1, #ARGV do
  local removed = redis.call('LREM', dead, -1, ARGV[i])
  result[#result + 1] = removed
  count, bytes = count + removed, bytes + removed * #ARGV[i]
end
if count > 0 then
  redis.call('HSET', ledger, 'dead_count', math.max(0, shard.was.dead_count - count),
    'dead_bytes', math.max(0, shard.was.dead_bytes - bytes))
end
return result
