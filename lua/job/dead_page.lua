-- dead_page: dead letters of a queue, oldest first; writes nothing.
--
-- KEYS[1] hash      jobs of the queue
-- KEYS[2] zset      its dead jobs by the time of death, ms; the fraction is the reason
-- KEYS[3] hash      its callers' ids, and why attempts of its jobs failed
-- ARGV[1] int       how many to skip
-- ARGV[2] int       how many, 1 to 1,000
-- ARGV[3] bytes     size of the answer, about, at most; but never less than a job
-- RETURNS {now, total, sequence, ms of death, reason, record, errors, ...}  total: dead jobs of the queue; reason: see death_reason; errors: as of get
--
-- USES whole, int, time, foreign, death_reason
local skip, count, size = whole(ARGV[1], 0), whole(ARGV[2], 1), whole(ARGV[3], 1)
if #KEYS ~= 3 or not (skip and count and size) or count > 1000 then
  return redis.error_reply('ERR dead_page: bad arguments')
end
local now = time()
local result = { now, redis.call('ZCARD', KEYS[2]) }
local found = redis.call('ZRANGE', KEYS[2], int(skip), int(skip + count - 1), 'WITHSCORES')
local bytes = 0
for x = 1, #found, 2 do
  if bytes >= size then
    break
  end
  local record = redis.call('HGET', KEYS[1], found[x])
  if record then
    local m, died, errors = #result, tonumber(found[x + 1]), redis.pcall('HGET', KEYS[3], '!' .. found[x])
    result[m + 1], result[m + 2], result[m + 3], result[m + 4] = found[x], math.floor(died), death_reason(died), record
    result[m + 5] = errors and not foreign(errors) and errors or ''
    bytes = bytes + #record
  end
end
return result
