-- drop_stale: take the stale entries off the old end of a partition and count
-- them expired. An entry is stale when its time is before cutoff (ms) or is no
-- time at all. The work is bounded to about 1,000 entries or 1 MiB a call.
-- The caller must have made sure that nobody holds a lease: what is dropped
-- here cannot be taken back, so a lapsed token is dropped with it.
-- Returns head as it now is, the number dropped, and whether more is to drop.
local function drop_stale(q, m, ledger, head, cutoff)
  local dropped, bytes, more = 0, 0, true
  local step = 1
  while more and dropped < 1024 and bytes < 1048576 do
    local chunk = redis.call('LRANGE', q, 0, step - 1)
    local n = 0
    for i = 1, #chunk do
      local e = chunk[i]
      if string.find(e, '^%d%d%d%d%d%d%d%d%d%d%d%d%d[ #]') and tonumber(string.sub(e, 1, 13)) >= cutoff then
        more = false
        break
      end
      n = i
      bytes = bytes + #e
    end
    if #chunk < step then
      more = false
    end
    if n > 0 then
      redis.call('LTRIM', q, n, -1)
      dropped = dropped + n
    end
    step = 64
  end
  if dropped > 0 then
    head = head + dropped
    redis.call('HINCRBY', ledger, 'expired', int(dropped))
    redis.call('HINCRBY', m, 'expired', int(dropped))
    redis.call('HSET', m, 'head', int(head))
    redis.call('HDEL', m, 'token', 'lease', 'from')
  end
  return head, dropped, more
end
