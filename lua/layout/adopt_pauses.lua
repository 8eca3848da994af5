-- adopt_pauses: take over the pauses of a closed shard, once.
--
-- A second time changes nothing, so no late copy brings back what was resumed meanwhile.
--
-- KEYS[1] hash      the shard's ledger
-- ARGV[1] string    the closed shard
-- ARGV[2..] string  name of a partition, * = all of them, and the text of its pause, of each
-- RETURNS {now, n}  n are paused now that were not
--
-- USES whole, time
local ledger = KEYS[1]
if ARGV[1] == '' or #ARGV % 2 == 0 then
  return redis.error_reply('ERR adopt_pauses: bad arguments')
end

local now = time()
local from = 'from:' .. ARGV[1]
local v = redis.call('HMGET', ledger, from, 'paused')
if v[1] then
  return { now, 0 }
end
local count, new, set = whole(v[2], 0) or 0, 0, { from, 1 }
for i = 2, #ARGV, 2 do
  local field = 'pause:' .. ARGV[i]
  if not redis.call('HGET', ledger, field) then
    new = new + 1
    set[#set + 1] = field
    set[#set + 1] = ARGV[i + 1]
  end
end
if new > 0 then
  set[#set + 1] = 'paused'
  set[#set + 1] = count + new
end
redis.call('HDEL', ledger, '') -- a full store rejects a script whose first write takes memory
redis.call('HSET', ledger, unpack(set))
return { now, new }
