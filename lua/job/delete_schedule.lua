-- delete_schedule: remove schedules of a queue. Jobs that they published stay.
--
-- KEYS[1] hash      states of the shard's schedules
-- KEYS[2] zset      active schedules by when they deserve a look, ms
-- KEYS[3] hash      name → specification, of the queue
-- KEYS[4] hash      of the owner: see register; any key where there is none
-- ARGV[1] string    the queue
-- ARGV[2] string    owner; '' = none. Those of another one stay
-- ARGV[3] int       only those that a lower version of the owner put; -1 = any
-- ARGV[4..] string  names
-- RETURNS {now, how many were removed, how many stay}
--
-- USES whole, time, owner_of
local owner, below = ARGV[2], whole(ARGV[3], -1)
if #KEYS ~= 4 or #ARGV < 4 or not below then
  return redis.error_reply('ERR delete_schedule: bad arguments')
end
local now, n, stay = time(), 0, 0
for i = 4, #ARGV do
  local member, spec = ARGV[i] .. ' ' .. ARGV[1], redis.call('HGET', KEYS[3], ARGV[i])
  local goes = not spec or owner_of(spec) == owner
  if goes and spec and below >= 0 then
    goes = (whole(redis.call('HGET', KEYS[4], member) or '', 0) or below) < below
  end
  if goes then
    redis.call('ZREM', KEYS[2], member)
    n = n + redis.call('HDEL', KEYS[1], member)
    redis.call('HDEL', KEYS[3], ARGV[i])
    if owner ~= '' then
      redis.call('HDEL', KEYS[4], member)
    end
  else
    stay = stay + 1
  end
end
return { now, n, stay }
