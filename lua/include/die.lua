-- die: forget a partition that has no entries left, and remember only how far
-- its sequences went, so that ids never repeat and nothing per partition stays.
local function die(ready, m, ledger, partition, tail)
  local mark = tonumber(redis.call('HGET', ledger, 'high_water') or '0')
  if tail > mark then
    redis.call('HSET', ledger, 'high_water', int(tail))
  end
  redis.call('DEL', m)
  redis.call('ZREM', ready, partition)
end
