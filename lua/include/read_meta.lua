-- read_meta: what the hash of a partition holds. Returns a table, or nil and the
-- error of a foreign value: there (nil: no hash); head, tail, settled, expired (the
-- first two nil: a hash that lacks one of them, or holds what no script of ours
-- writes, is a lost hash); big (the size in bytes of the largest entry, where that is
-- more than 4096); from, to, cuts, attempt and done while a range is held; token
-- while it is leased. done is a string of 0 and 1, the last for the sequence before
-- to: 1 = the sink accepted that entry in an earlier presentation. leftover: fields
-- of a range that is not there. evicted: see plausible.
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
