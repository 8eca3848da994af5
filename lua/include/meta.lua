-- create_meta: write the hash of a new partition with the sequences [head, tail), and
-- further fields and values. call is redis.call, or redis.pcall where the caller reads
-- the error.
local function create_meta(call, m, head, tail, ...)
  return call('HSET', m, 'head', head, 'tail', tail, 'birth', head, ...)
end

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

-- plausible: whether Spillway can have written head and tail: a list holds at most
-- 10,000,000 entries and those that one call adds. evicted is by how much the caller
-- moved head before it counted the entries that something other than Spillway pushed.
local function plausible(head, tail, evicted)
  return head and tail and tail + evicted >= head and tail - head <= 100000000
end

-- reconcile: restore I1, LLEN = tail - head, after something other than Spillway has
-- changed the list. Entries that vanished are lost; head rises, and from with it where
-- there is a range. Entries that were pushed are accepted. Vanished or evicted entries
-- that the sink has accepted count as delivered; but while a lease goes on and nothing
-- vanished, its holder counts them. Changes p and shard only. Returns true when the
-- caller has to write the hash.
local function reconcile(shard, p, length, leased)
  local missing = p.tail - p.head - length
  local add = shard.add
  local changed = missing ~= 0
  if missing < 0 then
    add.accepted = add.accepted - missing
    p.tail = p.tail - missing
  end
  if p.done and p.to and (missing > 0 or not leased) then
    local evicted = count_done(p.done, p.to, p.to - #p.done, p.head)
    local lost = count_done(p.done, p.to, p.head, p.head + math.max(missing, 0))
    add.delivered = add.delivered + evicted + lost
    add.reclaimed = add.reclaimed + evicted
    add.lost = add.lost - lost
    p.settled = p.settled + evicted
    local left = keep_done(p.done, p.to, p.head + math.max(missing, 0))
    if left ~= p.done then
      p.done = left
      changed = true
    end
  end
  if missing > 0 then
    add.lost = add.lost + missing
    p.settled = p.settled + missing
    p.head = p.head + missing
    if p.from then
      p.from = math.max(p.from, p.head)
    end
  end
  return changed
end

-- adopt: create a new hash for a list without one. Where the active set knows the
-- partition, its entries were accepted before; otherwise something other than
-- Spillway made the list, and its entries are accepted now. A lease ends. The size of
-- the entries is unknown, so claims read them as if each had 64 KiB.
local function adopt(shard, m, p, length, known)
  redis.call('DEL', m)
  p.head = math.max(shard.now_us, shard.high_water)
  p.tail = p.head + length
  p.settled, p.expired = 0, 0
  p.from, p.to, p.cuts, p.done, p.token = nil, nil, nil, nil, nil
  create_meta(redis.call, m, p.head, p.tail, 'big', 65536)
  if not known then
    shard.add.accepted = shard.add.accepted + length
  end
end

-- end_partition: remove a partition that has no entries left. Only the high-water
-- mark remembers how far its sequences went, so that sequences never repeat and an
-- empty partition costs nothing. close_shard does it for all partitions of the call.
local function end_partition(shard, name, q, m, tail)
  shard.high_water = math.max(shard.high_water, tail)
  shard.ended_names[#shard.ended_names + 1] = name
  shard.ended_keys[#shard.ended_keys + 1] = q
  shard.ended_keys[#shard.ended_keys + 1] = m
end
