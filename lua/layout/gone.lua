-- gone: tell of which partitions a fenced shard has nothing left.
--
-- What is gone never comes back: the fence lets nothing in. A partition that is paused here
-- is not gone, because its home in the newer layout does not know of the pause yet.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      active partitions of the shard by due time, ms
-- KEYS[3..] list    of each partition: its entries
-- ARGV[1] int       layout of the shard
-- ARGV[2..] string  names of the partitions
-- RETURNS {now, -1}               not fenced; nothing is known
-- RETURNS {now, 2}                closed, with pauses, which are to be copied first; nothing else is left
-- RETURNS {now, left, answer...}  left: 0 = nothing is left in the shard, and nothing paused. For each
--                   partition 0 = gone, or when it is due here, in ms
--
-- USES whole, time, open_shard, entries_left
local ledger, ready = KEYS[1], KEYS[2]
local own = whole(ARGV[1], 1)
if not own or #ARGV < 2 or #KEYS ~= #ARGV + 1 then
  return redis.error_reply('ERR gone: bad arguments')
end

local shard, rejected = open_shard(ledger)
if rejected then
  return rejected
end
local now = shard.now
if shard.fence <= own then
  return { now, -1 }
end
if shard.paused and redis.call('HEXISTS', ledger, 'closed') == 1 then
  return { now, 2 }
end
local fields = { 'pause:*' }
for i = 2, #ARGV do
  fields[i] = 'pause:' .. ARGV[i]
end
local paused = shard.paused and redis.call('HMGET', ledger, unpack(fields)) or {}
local scores = redis.call('ZMSCORE', ready, unpack(ARGV, 2))
local left = (shard.paused or entries_left(shard) > 0 or redis.call('ZCARD', ready) > 0) and 1 or 0
local result = { now, left }
for i = 2, #ARGV do
  local due = tonumber(scores[i - 1] or nil)
  if not due then
    local length = redis.pcall('LLEN', KEYS[i + 1])
    if length ~= 0 then
      due = now -- the janitor repairs it
    elseif paused[1] or paused[i] then
      due = now + 1000
    end
  end
  result[i + 1] = due and math.max(1, due) or 0
end
return result
