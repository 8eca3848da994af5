-- page: list active partitions of a shard, a page at a time, by due time; writes nothing.
--
-- A page begins behind a due time and a name, not at a rank: partitions that leave, or
-- that come due later, change the ranks of the others. So a partition whose due time
-- stays is in exactly one page, whatever the others do.
--
-- KEYS[1] zset      active partitions of the shard by due time, ms
-- ARGV[1] string    due time in ms that the page begins at; -inf for the first page
-- ARGV[2] string    of the partitions that are due then, those behind this name; empty: all
-- ARGV[3] int       partitions of the page
-- RETURNS {now, due, partition...}  due time of the last one as text, for the next page
--
-- USES whole, time
local ready, due, name, count = KEYS[1], ARGV[1], ARGV[2], whole(ARGV[3], 1)
if not count then
  return redis.error_reply('ERR page: bad arguments')
end

-- precedes compares names as the active set does: by their bytes. The < of Lua goes by the
-- server's locale.
local function precedes(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

local first, last = redis.call('ZCOUNT', ready, '-inf', '(' .. due), redis.call('ZCOUNT', ready, '-inf', due)
while first < last do
  local middle = math.floor((first + last) / 2)
  if precedes(name, redis.call('ZRANGE', ready, middle, middle)[1]) then
    last = middle
  else
    first = middle + 1
  end
end
local found = redis.call('ZRANGE', ready, first, first + count - 1, 'WITHSCORES')
local now = time()
local result = { now, found[#found] or due }
for i = 1, #found, 2 do
  result[#result + 1] = found[i]
end
return result
