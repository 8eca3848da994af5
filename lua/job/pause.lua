-- pause: stop the claims of a queue, or resume them. Publishes, delays and leases go on meanwhile.
--
-- A second pause replaces who and why, and keeps since when. The resume wakes those who wait, as a push to an empty list
-- does.
--
-- KEYS[1] hash      paused queues: since when, ms, and behind a space who and why
-- KEYS[2] list      ready jobs of the queue
-- KEYS[3] hash      the shard's ledger
-- ARGV[1] string    name of the queue
-- ARGV[2] string    pause or resume
-- ARGV[3] string    who and why
-- ARGV[4] int       queues that may be paused
-- ARGV[5] string    beginning of the channels that wake who waits
-- ARGV[6] string    the command that wakes: publish, or spublish in a cluster
-- ARGV[7] int       newest layout that the caller knows
-- RETURNS {now, done}  1 it is paused now, or was until now; 0 too many are, or it was not; 10 rejected: the shards of the
--                   namespace are changing, or changed and the caller does not know
--
-- USES whole, int, time, foreign, wake
local paused, name, most, layout = KEYS[1], ARGV[1], whole(ARGV[4], 0), whole(ARGV[7] or '', 1)
if #KEYS ~= 3 or #ARGV ~= 7 or not (most and layout) or ARGV[2] ~= 'pause' and ARGV[2] ~= 'resume' then
  return redis.error_reply('ERR pause: bad arguments')
end
local now = time()
local v = redis.call('HMGET', KEYS[3], 'fence', 'held')
local held = ARGV[2] == 'pause' and tonumber(v[2] or 0) or 0
if (tonumber(v[1] or 0) or 0) > layout or held > now then
  return { now, 10 }
end
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
