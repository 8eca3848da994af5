-- peek: the next ready payload of a queue of PHP's; writes nothing.
--
-- KEYS[1] list      ready payloads, PHP's
-- RETURNS {now, 0}           none
-- RETURNS {now, 1, payload}
--
-- USES time
if #KEYS ~= 1 then
  return redis.error_reply('ERR peek: bad arguments')
end
local now = time()
local payload = redis.call('LINDEX', KEYS[1], 0)
if payload then
  return { now, 1, payload }
end
return { now, 0 }
