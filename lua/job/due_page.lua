-- due_page: a page of the schedules that are due, or soon will be, with their states; writes nothing.
--
-- KEYS[1] zset      active schedules by when they deserve a look, ms
-- KEYS[2] hash      states of the shard's schedules
-- ARGV[1] ms        how far ahead
-- ARGV[2] int       how many to leave out first
-- ARGV[3] int       how many at most
-- RETURNS {now, member, score, state, ...}  state: '' where there is none
--
-- USES whole, int, time
local ahead, skip, count = whole(ARGV[1], 0), whole(ARGV[2], 0), whole(ARGV[3], 1)
if #KEYS ~= 2 or not (ahead and skip and count) then
  return redis.error_reply('ERR due_page: bad arguments')
end
local now = time()
local page = redis.call('ZRANGE', KEYS[1], '-inf', int(now + ahead), 'BYSCORE', 'LIMIT', int(skip), int(count), 'WITHSCORES')
local result, members = { now }, {}
for i = 1, #page, 2 do
  members[#members + 1] = page[i]
end
local states = {}
if #members > 0 then
  states = redis.call('HMGET', KEYS[2], unpack(members))
end
for i, member in ipairs(members) do
  local n = #result
  result[n + 1], result[n + 2], result[n + 3] = member, tonumber(page[2 * i]), states[i] or ''
end
return result
