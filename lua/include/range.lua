-- end_range: remove every field of a range and its lease from a partition's hash, and
-- further fields with the same command.
local function end_range(m, ...)
  redis.call('HDEL', m, 'from', 'to', 'cuts', 'attempt', 'done', 'token', ...)
end

-- end_lease: take a lease from its holder. The range stays.
local function end_lease(m)
  redis.call('HDEL', m, 'token', 'from')
end

-- lease_of: the length of a lease in ms, which its token begins with; 0 where there is none.
local function lease_of(token)
  return tonumber(string.match(token or '', '^(%d+)%.') or 0)
end

-- count_done: how many entries of [lo, hi) the sink accepted in an earlier
-- presentation. done and to: see read_meta.
local function count_done(done, to, lo, hi)
  if not (done and to) then
    return 0
  end
  local first, last = #done - (to - lo) + 1, #done - (to - hi)
  if last < 1 then
    return 0
  end
  local _, n = string.gsub(string.sub(done, math.max(first, 1), last), '1', '1')
  return n
end

-- keep_done: the part of done for [from, to); nil when the sink accepted none of it.
local function keep_done(done, to, from)
  if not (done and to and from) or to <= from then
    return nil
  end
  done = string.sub(done, -(to - from))
  return string.find(done, '1', 1, true) and done or nil
end

-- write_done: write the field done, or remove it where done is nil.
local function write_done(m, done)
  if done then
    redis.call('HSET', m, 'done', done)
  else
    redis.call('HDEL', m, 'done')
  end
end
