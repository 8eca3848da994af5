-- close_shard: write what the partitions of a call share, with one command each.
-- ended_names are the members that leave the active set, ended_keys the keys of
-- partitions without entries, due holds score, member, ... for the active set; then
-- come the totals of the ledger, and its field keys where the call counted one. The
-- commands that free memory come first: a full store does not refuse those.
local function close_shard(ready, ledger, shard)
  if #shard.ended_names > 0 then
    redis.call('ZREM', ready, unpack(shard.ended_names))
    redis.call('DEL', unpack(shard.ended_keys))
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
  if shard.high_water > shard.was.high_water then
    totals[#totals + 1] = 'high_water'
    totals[#totals + 1] = shard.high_water
  end
  if shard.keys then
    totals[#totals + 1] = 'keys'
    totals[#totals + 1] = shard.keys
  end
  if #totals > 0 then
    redis.call('HSET', ledger, unpack(totals))
  end
end
