-- result: read the result of an idempotent produce in a former home.
--
-- KEYS[1] string    the result of the call
-- RETURNS {now}        there is none
-- RETURNS {now, text}  what produce stored: accepted, evicted, depth
--
-- USES time
local now = time()
local stored = redis.call('GET', KEYS[1])
if not stored then
  return { now }
end
return { now, stored }
