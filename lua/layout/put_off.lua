-- put_off: let partitions wait that are due, for entries of theirs in an older layout.
--
-- One that is not due stays: it may be leased.
--
-- KEYS[1] zset      active partitions of the shard by due time, ms
-- ARGV[1..] ms,string  of each partition: how long, its name
-- RETURNS {now, n}  n were put off
--
-- USES whole, time
local ready = KEYS[1]
if #ARGV < 2 or #ARGV % 2 ~= 0 then
  return redis.error_reply('ERR put_off: bad arguments')
end

local now = time()
local set = {}
for i = 1, #ARGV, 2 do
  local wait = whole(ARGV[i], 0)
  if not wait then
    return redis.error_reply('ERR put_off: bad arguments')
  end
  local due = tonumber(redis.call('ZSCORE', ready, ARGV[i + 1]) or nil)
  if due and due <= now then
    set[#set + 1] = now + wait
    set[#set + 1] = ARGV[i + 1]
  end
end
if #set > 0 then
  redis.call('ZADD', ready, unpack(set))
end
return { now, #set / 2 }
