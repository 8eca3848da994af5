-- is_stale: whether the time of an entry is before cutoff (ms), or is not a time.
local function is_stale(entry, cutoff)
  local form = string.byte(entry, 14)
  local written = (form == 32 or form == 35) and tonumber(string.sub(entry, 1, 13))
  return not written or written < cutoff
end

-- drop_stale: remove the stale entries at the old end of a partition. They count as
-- expired, or as delivered where the sink has accepted them. chunk holds the oldest
-- entries; further ones are read step by step, until the call has dropped about 1,000
-- entries or 1 MiB. Nobody may hold a lease: what is dropped cannot be taken back.
-- Changes p and shard. Returns the fresh entries of what was read, the number of
-- entries dropped and of those that expired, and whether there may be more to drop.
local function drop_stale(shard, q, p, chunk, step, cutoff)
  local dropped, expired, more = 0, 0, true
  local add = shard.add
  local n
  while true do
    n = 0
    while n < #chunk and is_stale(chunk[n + 1], cutoff) do
      n = n + 1
      shard.stale_bytes = shard.stale_bytes + #chunk[n]
    end
    more = n > 0 and n == #chunk and p.tail - p.head > n
    if n > 0 then
      redis.call('LTRIM', q, n, -1)
      shard.wrote = true
      local done = count_done(p.done, p.to, p.head, p.head + n)
      add.delivered = add.delivered + done
      add.expired = add.expired + n - done
      p.settled = p.settled + done
      p.expired = p.expired + n - done
      p.head = p.head + n
      p.done = keep_done(p.done, p.to, p.head)
      dropped = dropped + n
      expired = expired + n - done
      shard.stale = shard.stale + n
    end
    if not more or shard.stale >= 1024 or shard.stale_bytes >= 1048576 then
      break
    end
    chunk = redis.call('LRANGE', q, 0, step - 1)
  end
  if n == 0 then
    return chunk, dropped, expired, more
  end
  local fresh = {}
  for i = n + 1, #chunk do
    fresh[#fresh + 1] = chunk[i]
  end
  return fresh, dropped, expired, more
end

-- trim_first: make the first write of a call an LTRIM that removes nothing. Redis checks
-- only at the first write of a script whether memory is full, and never rejects an
-- LTRIM. So the scripts that free memory run when memory is full.
local function trim_first(shard, q)
  if not shard.wrote then
    redis.call('LTRIM', q, 0, -1)
    shard.wrote = true
  end
end
