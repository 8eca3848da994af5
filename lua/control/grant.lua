-- grant: grant a process a part of a rate that all processes share.
--
-- A window begins with its first grant. What it grants is never more than the limit,
-- and is not given back. The first write is DEL, which a full store does not reject.
--
-- KEYS[1] string    the window: its length, its end in ms, what it granted
-- ARGV[1] int       limit of a window
-- ARGV[2] ms        length of a window
-- ARGV[3] int       what the process needs
-- ARGV[4] int       slice; whole slices are granted while the window has them
-- RETURNS {now, granted, left, ends}  granted 0: less than needed is left; ends: of the window, in ms
--
-- USES whole, int, time
local window = KEYS[1]
local limit, length, need, slice = whole(ARGV[1], 1), whole(ARGV[2], 1), whole(ARGV[3], 1), whole(ARGV[4], 1)
if not (limit and length and need and slice) then
  return redis.error_reply('ERR grant: bad arguments')
end

local now = time()
local of, ends, used = string.match(redis.call('GET', window) or '', '^(%d+) (%d+) (%d+)$')
ends, used = tonumber(ends or 0), tonumber(used or 0)
-- A window that ends later than its length from now was begun before the clock went back.
if tonumber(of) ~= length or ends <= now or ends > now + length then
  ends, used = now + length, 0
end
local left = math.max(limit - used, 0)
if need > left then
  return { now, 0, left, ends }
end
local granted = math.min(math.ceil(need / slice) * slice, left)
redis.call('DEL', window)
redis.call('SET', window, int(length) .. ' ' .. int(ends) .. ' ' .. int(used + granted), 'PX', int(ends - now))
return { now, granted, left - granted, ends }
