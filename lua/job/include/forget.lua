-- forget: once a queue has no job left, remove all else of it: its place in the index
-- and the references that lead nowhere. Where those are more than its tombstones,
-- something other than Spillway removed jobs: they are lost. A key of another type is
-- left alone. Returns the jobs that are lost.
local function forget(queues, tombstones, r, j, queue)
  if redis.call('HLEN', j) > 0 then
    return 0
  end
  local missing = 0
  local references = redis.pcall('LLEN', r)
  if not foreign(references) and references > 0 then
    local known = redis.pcall('HGET', tombstones, queue)
    missing = math.max(0, references - (not foreign(known) and tonumber(known or 0) or 0))
    redis.call('DEL', r)
  end
  redis.pcall('HDEL', tombstones, queue)
  redis.pcall('ZREM', queues, queue)
  return missing
end
