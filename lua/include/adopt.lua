-- adopt: give a list without its hash a new one. Where the active set knows the
-- partition its entries were accepted once; else something other than Spillway
-- made the list, and they are accepted now. Whoever held a lease lost it. Nobody
-- knows how large the entries are: they are read as if they were large.
local function adopt(shard, m, p, length, known)
  redis.call('DEL', m)
  p.head = math.max(shard.now_us, shard.mark)
  p.tail = p.head + length
  p.settled, p.expired = 0, 0
  p.from, p.to, p.cuts, p.done, p.token = nil, nil, nil, nil, nil
  redis.call('HSET', m, 'head', p.head, 'tail', p.tail, 'birth', p.head, 'big', 65536)
  if not known then
    shard.add.accepted = shard.add.accepted + length
  end
end
