-- end_partition: remove a partition that has no entries left. Only the high-water
-- mark remembers how far its sequences went, so that sequences never repeat and an
-- empty partition costs nothing. close_shard does it for all partitions of the call.
local function end_partition(shard, name, q, m, tail)
  shard.high_water = math.max(shard.high_water, tail)
  shard.ended_names[#shard.ended_names + 1] = name
  shard.ended_keys[#shard.ended_keys + 1] = q
  shard.ended_keys[#shard.ended_keys + 1] = m
end
