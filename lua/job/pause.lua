-- pause: stop the claims of a queue, or resume them. Publishes, delays and leases go on meanwhile.
--
-- A second pause replaces who and why, and keeps since when. The resume wakes those who wait, as a push to an empty list
-- does.
--
-- KEYS[1] hash      paused queues: since when, ms, and behind a space who and why
-- KEYS[2] list      ready jobs of the queue
-- ARGV[1] string    name of the queue
-- ARGV[2] string    pause or resume
-- ARGV[3] string    who and why
-- ARGV[4] int       queues that may be paused
-- ARGV[5] string    beginning of the channels that wake who waits
-- ARGV[6] string    the command that wakes: publish, or spublish in a cluster
-- RETURNS {now, done}  1 it is paused now, or was until now; 0 too many are, or it was not
--
-- USES whole, int, time, foreign, wake
local paused, name, most = KEYS[1], ARGV[1], whole(ARGV[4], 0)
if #KEYS ~= 2 or #ARGV ~= 6 or not most or ARGV[2] ~= 'pause' and ARGV[2] ~= 'resume' then
  return redis.error_reply('ERR pause: bad arguments')
end
local now = time()
if ARGV[2] == 'pause' then
  local before = redis.call('HGET', paused, name)
  if not before and redis.call('HLEN', paused) >= most then
    return { now, 0 }
  end
  local since = before and string.match(before, '^%d+') or int(now)
  redis.call('HSET', paused, name, since .. ' ' .. ARGV[3])
  return { now, 1 }
end
local was = redis.call('HDEL', paused, name)
local length = redis.pcall('LLEN', KEYS[2])
if was == 1 and not foreign(length) and length > 0 then
  wake(ARGV[6], ARGV[5], name, length, length)
end
return { now, was }
