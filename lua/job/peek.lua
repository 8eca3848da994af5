-- peek: the next ready job of a queue; writes nothing.
--
-- KEYS[1] list      ready jobs of the queue
-- KEYS[2] hash      its jobs
-- KEYS[3] hash      attempts of jobs that were claimed before
-- ARGV[1] string    name of the queue
-- RETURNS {now, 0}                             none, among the first 200 references and about 1 MiB of expired jobs
-- RETURNS {now, 1, sequence, attempts, record}  attempts: how often it was claimed
--
-- USES time, ends_of
if #KEYS ~= 3 or #ARGV ~= 1 then
  return redis.error_reply('ERR peek: bad arguments')
end
local now = time()
local bytes = 0
for i = 0, 199 do
  local seq = redis.call('LINDEX', KEYS[1], i)
  if not seq or bytes > 1048576 then
    break
  end
  local record = redis.call('HGET', KEYS[2], seq)
  local ends = ends_of(record)
  bytes = bytes + (record and #record or 0)
  if ends and (ends == 0 or ends > now) then
    return { now, 1, seq, tonumber(redis.call('HGET', KEYS[3], seq .. ' ' .. ARGV[1]) or 0) or 0, record }
  end
end
return { now, 0 }
