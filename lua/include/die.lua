-- die: forget a partition that has no entries left, and remember only how far
-- its sequences went, so that ids never repeat and nothing per partition stays.
-- close_shard does it, for all partitions of the call together.
local function die(shard, name, q, m, tail)
  shard.mark = math.max(shard.mark, tail)
  shard.gone[#shard.gone + 1] = name
  shard.empty[#shard.empty + 1] = q
  shard.empty[#shard.empty + 1] = m
end
