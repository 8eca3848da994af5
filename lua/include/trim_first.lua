-- trim_first: make the first write of a call an LTRIM that removes nothing. Redis checks
-- only at the first write of a script whether memory is full, and never refuses an
-- LTRIM. So the scripts that free memory run when memory is full.
local function trim_first(shard, q)
  if not shard.wrote then
    redis.call('LTRIM', q, 0, -1)
    shard.wrote = true
  end
end
