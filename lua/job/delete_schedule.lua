-- delete_schedule: remove schedules of a queue. Jobs that they published stay.
--
-- KEYS[1] hash      states of the shard's schedules
-- KEYS[2] zset      active schedules by when they deserve a look, ms
-- KEYS[3] hash      name → specification, of the queue
-- ARGV[1] string    the queue
-- ARGV[2..] string  names
-- RETURNS {now, how many there were}
--
-- USES time
if #KEYS ~= 3 or #ARGV < 2 then
  return redis.error_reply('ERR delete_schedule: bad arguments')
end
local now, n = time(), 0
for i = 2, #ARGV do
  local member = ARGV[i] .. ' ' .. ARGV[1]
  redis.call('ZREM', KEYS[2], member)
  n = n + redis.call('HDEL', KEYS[1], member)
  redis.call('HDEL', KEYS[3], ARGV[i])
end
return { now, n }
