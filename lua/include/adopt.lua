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
