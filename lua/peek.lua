-- peek: read a few values of a list, for an operator; writes nothing.
--
-- KEYS[1] list      entries of a partition, or dead letters of a shard, oldest first
-- KEYS[2] hash      optional: the partition's sequences
-- ARGV[1] int       1 = towards the oldest; 0 = towards the newest
-- ARGV[2] int       position of the first value, the oldest has 0; towards the oldest at most that of the newest
-- ARGV[3] int       values that it reads at most
-- ARGV[4] bytes     bytes that it reads at most, about; but never less than one value
-- RETURNS {now, length, head, position, value...}  values of the whole list; sequence of the oldest one,
--                   0 = not known; position of the first value of the reply, -1 = the list is empty
--
-- USES whole, time
local q, m = KEYS[1], KEYS[2]
local back, at, count, room = whole(ARGV[1], 0), whole(ARGV[2], 0), whole(ARGV[3], 1), whole(ARGV[4], 1)
if not (back and at and count and room) or back > 1 or #KEYS > 2 or #ARGV ~= 4 then
  return redis.error_reply('ERR peek: bad arguments')
end

local now = time()
local length = redis.call('LLEN', q)
local head, largest = 0, 0 -- size of the largest value, as far as that is known
if m then
  local v = redis.call('HMGET', m, 'head', 'tail', 'big')
  local from, tail = whole(v[1], 0), whole(v[2], 0)
  if from and tail then
    -- Where values vanished, the scripts count the oldest as lost.
    head, largest = math.max(from, tail - length), whole(v[3], 1) or 4096
  end
end
if back == 1 then
  at = math.min(at, length - 1)
end

local result = { now, length, head, at }
local last = 4 + count
while #result < last and room > 0 and at >= 0 and at < length do
  -- Few at once, because Redis tells no sizes before a read.
  local n = largest > 0 and math.max(1, math.min(16, math.floor(room / largest))) or 1
  n = math.min(n, last - #result)
  local some
  if back == 1 then
    some = redis.call('LRANGE', q, math.max(0, at - n + 1), at)
    for i = 1, math.floor(#some / 2) do
      some[i], some[#some + 1 - i] = some[#some + 1 - i], some[i]
    end
    at = at - #some
  else
    some = redis.call('LRANGE', q, at, at + n - 1)
    at = at + #some
  end
  for i = 1, #some do
    result[#result + 1] = some[i]
    largest, room = math.max(largest, #some[i]), room - #some[i]
  end
end
return result
