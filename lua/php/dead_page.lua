-- dead_page: dead letters of a queue, oldest first; writes nothing.
--
-- KEYS[1] zset      our dead letters: sequence by time of death, ms
-- KEYS[2] hash      our dead letters: sequence -> "<reason> <place of attempts> <payload>", see read_letter
-- ARGV[1] int       how many to skip
-- ARGV[2] int       how many, 1 to 1,000
-- ARGV[3] bytes     size of the answer, about, at most; but never less than a letter
-- RETURNS {now, total, sequence, ms of death, reason, payload, ...}  total: dead letters of the queue
--
-- USES whole, int, time, read_letter
local skip, count, size = whole(ARGV[1], 0), whole(ARGV[2], 1), whole(ARGV[3], 1)
if #KEYS ~= 2 or #ARGV ~= 3 or not (skip and count and size) or count > 1000 then
  return redis.error_reply('ERR dead_page: bad arguments')
end
local now = time()
local result, bytes = { now, redis.call('ZCARD', KEYS[1]) }, 0
local found = redis.call('ZRANGE', KEYS[1], int(skip), int(skip + count - 1), 'WITHSCORES')
for x = 1, #found, 2 do
  if bytes >= size then
    break
  end
  local reason, payload, _, told = read_letter(redis.call('HGET', KEYS[2], found[x]) or nil)
  if reason then
    local m = #result
    result[m + 1], result[m + 2], result[m + 3], result[m + 4] = found[x], tonumber(found[x + 1]), told, payload
    bytes = bytes + #payload
  end
end
return result
