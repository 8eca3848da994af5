-- hold: let nobody put schedules into a shard for a while, whose namespace gets other shards; or tell that it has some.
--
-- Schedules and their owners do not move to other shards. Who gives a namespace others holds all first: then none can
-- come between the look and the fence.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] hash      states of the shard's schedules
-- KEYS[3] zset      owners by when their registration ends, ms
-- ARGV[1] ms        for how long; 0 = only look, and write nothing
-- RETURNS {now}     held, or there are none
-- RETURNS {now, schedule, owner}  rejected: "<name> <queue>" of a schedule, and an owner; '' = there is none
--
-- USES whole, int, time
local ledger, wait = KEYS[1], whole(ARGV[1], 0)
if #KEYS ~= 3 or not wait then
  return redis.error_reply('ERR hold: bad arguments')
end
local now = time()
local schedule = redis.call('HRANDFIELD', KEYS[2]) or ''
local owner = redis.call('ZRANGE', KEYS[3], 0, 0)[1] or ''
if schedule ~= '' or owner ~= '' then
  return { now, schedule, owner }
end
if wait > 0 then
  redis.call('HSET', ledger, 'held', int(now + wait))
end
return { now }
