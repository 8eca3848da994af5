-- read_meta: what the hash of a partition holds. Returns a table, or nil and the
-- error of a foreign value: there (nil: no hash); head, tail, settled, expired (the
-- first two nil: a hash that lacks one of them is a lost hash); big (the size in bytes of the largest entry, where that is more than
-- 4096); from, to, cuts, attempt and done while a range is held; token while it is
-- leased. done is a string of 0 and 1, the last for the
-- sequence before to: 1 = the sink accepted that entry in an earlier presentation.
local function read_meta(m)
  local v = redis.pcall('HMGET', m, 'head', 'tail', 'settled', 'expired', 'big',
    'from', 'to', 'cuts', 'attempt', 'done', 'token')
  if v.err then
    return nil, v.err
  end
  local p = {
    head = tonumber(v[1]), tail = tonumber(v[2]), settled = tonumber(v[3] or 0), expired = tonumber(v[4] or 0),
    big = tonumber(v[5]), from = tonumber(v[6]), to = tonumber(v[7]), cuts = v[8], attempt = tonumber(v[9] or 1),
    done = v[10] or nil, token = v[11] or nil,
  }
  p.there = p.head or p.tail
  if not (p.head and p.tail) then
    p.head, p.tail = nil, nil
  end
  return p
end
