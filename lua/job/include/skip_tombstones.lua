-- skip_tombstones: count down the tombstones of a queue by references that led nowhere and
-- are out of its list. Returns how many more there were than tombstones: something other
-- than Spillway removed those jobs, so they are lost.
local function skip_tombstones(tombstones, r, queue, missing)
  local left = 1
  if missing > 0 then
    left = redis.call('HINCRBY', tombstones, queue, -missing)
  end
  if left <= 0 or redis.call('LLEN', r) == 0 then
    redis.call('HDEL', tombstones, queue)
  end
  return math.max(0, -left)
end
