-- read_meta: read the hash of a partition. evicted: see plausible. Returns nil and the
-- error of a foreign value, or a table:
--   there             nil where there is no hash
--   head, tail        nil where the hash is lost: it lacks one of them, or holds a value
--                     that no script writes
--   settled, expired  0 where they are absent
--   big               size of the largest entry in bytes, where that is more than 4096
--   from, to, cuts, attempt, done  while there is a range. done has one 0 or 1 per
--                     entry, the last for sequence to - 1; 1 = the sink accepted the
--                     entry in an earlier presentation
--   token             while there is a lease
--   leftover          a field of a range that is no longer there
local function read_meta(m, evicted)
  local v = redis.pcall('HMGET', m, 'head', 'tail', 'settled', 'expired', 'big',
    'from', 'to', 'attempt', 'cuts', 'done', 'token')
  if v.err then
    return nil, v.err
  end
  local bad = false
  local n = {}
  for i = 1, 8 do
    if v[i] then
      n[i] = whole(v[i], 0)
      bad = bad or not n[i]
    end
  end
  local p = {
    there = v[1] or v[2], head = n[1], tail = n[2], settled = n[3] or 0, expired = n[4] or 0, big = n[5],
    from = n[6], to = n[7], attempt = n[8] or 1, cuts = v[9], done = v[10] or nil, token = v[11] or nil,
  }
  if bad or not plausible(p.head, p.tail, evicted or 0)
    or p.to and p.to > p.tail or p.from and p.from > p.head then
    p.head, p.tail = nil, nil
  end
  if not p.to then
    p.leftover = p.cuts or p.done or v[8]
    p.cuts, p.done, p.attempt = nil, nil, 1
  end
  return p
end
