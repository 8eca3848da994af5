-- end_range: remove every field of a range and its lease from a partition's hash, and
-- further fields with the same command.
local function end_range(m, ...)
  redis.call('HDEL', m, 'from', 'to', 'cuts', 'attempt', 'done', 'token', ...)
end
