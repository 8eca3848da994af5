-- stored: what a former home of a queue knows of a publish that goes to its newest; writes nothing.
--
-- KEYS[1] string    result of the publish under its key; any key where it has none
-- KEYS[2] hash      callers' ids of the queue
-- KEYS[3] hash      its jobs
-- KEYS[4] zset      its dead jobs
-- KEYS[5] zset      leases of the shard by deadline, ms
-- KEYS[6] string    what was stored under its unique key; any key where it has none
-- ARGV[1] string    name of the queue
-- ARGV[2] string    caller's id; '' = none
-- RETURNS {now, status, first, count}  as publish: 2 stored before under its key, count jobs; 3 a job with that caller's id
--                   exists, or was stored under its unique key. 0 neither; with 0, 0
--
-- USES time, ends_of, is_over
if #KEYS ~= 6 or #ARGV ~= 2 then
  return redis.error_reply('ERR stored: bad arguments')
end
local now, queue, id = time(), ARGV[1], ARGV[2]
local before = redis.call('GET', KEYS[1])
if before then
  local first, count = string.match(before, '^(%d+) (%d+)$')
  if not first then
    return redis.error_reply('WRONGTYPE the result of a publish holds a foreign value')
  end
  return { now, 2, tonumber(first), tonumber(count) }
end
local double = string.match(redis.call('GET', KEYS[6]) or '', '^(%d+) 1$')
if double then
  return { now, 3, tonumber(double), 1 }
end
local seq = id ~= '' and redis.call('HGET', KEYS[2], id)
local record = seq and redis.call('HGET', KEYS[3], seq)
if record and (not is_over(record, now) or redis.call('ZSCORE', KEYS[4], seq)
  or (tonumber(redis.call('ZSCORE', KEYS[5], seq .. ' ' .. queue) or 0) or 0) > now) then
  return { now, 3, tonumber(seq), 1 }
end
return { now, 0, 0, 0 }
