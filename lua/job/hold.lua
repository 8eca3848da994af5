-- hold: let nobody put schedules into a shard for a while, or pause queues, whose namespace gets other shards; or tell
-- that it has some.
--
-- Schedules, their owners and pauses do not move to other shards. Who gives a namespace others holds all first: then none can
-- come between the look and the fence.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] hash      states of the shard's schedules
-- KEYS[3] zset      owners by when their registration ends, ms
-- KEYS[4] hash      paused queues
-- ARGV[1] ms        for how long; 0 = only look, and write nothing
-- RETURNS {now}     held, or there are none
-- RETURNS {now, schedule, owner, queue}  rejected: "<name> <queue>" of a schedule, an owner, a paused queue; '' = there is none.
--                   All '': the namespace is being deleted
--
-- USES whole, int, time
local ledger, wait = KEYS[1], whole(ARGV[1], 0)
if #KEYS ~= 4 or not wait then
  return redis.error_reply('ERR hold: bad arguments')
end
local now = time()
local schedule = redis.call('HRANDFIELD', KEYS[2]) or ''
local owner = redis.call('ZRANGE', KEYS[3], 0, 0)[1] or ''
local queue = redis.call('HRANDFIELD', KEYS[4]) or ''
local closed = (tonumber(redis.call('HGET', ledger, 'closed') or 0) or 0) > now
if schedule ~= '' or owner ~= '' or queue ~= '' or closed then
  return { now, schedule, owner, queue }
end
if wait > 0 then
  redis.call('HSET', ledger, 'held', int(now + wait))
end
return { now }
