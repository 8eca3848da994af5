-- close_shard: write what all partitions of a call share, each with one command:
-- members that leave the active set (gone), keys of partitions without entries
-- (empty), due times (due: score, member, ...) and the totals of the ledger. What
-- only frees memory comes first, so that it is not refused by a full store.
local function close_shard(ready, ledger, shard)
  if #shard.gone > 0 then
    redis.call('ZREM', ready, unpack(shard.gone))
    redis.call('DEL', unpack(shard.empty))
  end
  if #shard.due > 0 then
    redis.call('ZADD', ready, unpack(shard.due))
  end
  local totals = {}
  for class, n in pairs(shard.add) do
    if n ~= 0 then
      totals[#totals + 1] = class
      totals[#totals + 1] = shard.was[class] + n
    end
  end
  if shard.mark > shard.was.high_water then
    totals[#totals + 1] = 'high_water'
    totals[#totals + 1] = shard.mark
  end
  if #totals > 0 then
    redis.call('HSET', ledger, unpack(totals))
  end
end
