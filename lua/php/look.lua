-- look: what a queue of PHP's holds; writes nothing.
--
-- KEYS[1] list      ready payloads, PHP's
-- KEYS[2] zset      delayed payloads by due time, s, PHP's
-- KEYS[3] zset      reserved payloads by deadline, s, PHP's; ours have a fraction
-- KEYS[4] zset      our leases
-- KEYS[5] zset      our dead letters
-- RETURNS {now, ready, delayed, reserved, leased, dead, due, deadline}  reserved: ours included; due: of the first delayed
--                   one, deadline: of the first reserved one, s as text, '' for none
--
-- USES time
if #KEYS ~= 5 then
  return redis.error_reply('ERR look: bad arguments')
end
local now = time()
local due, deadline = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES'), redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
return { now, redis.call('LLEN', KEYS[1]), redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3]),
  redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[5]), due[2] or '', deadline[2] or '' }
