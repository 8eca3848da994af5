-- open: read a partition and mend it, as the first writes of a script.
-- Every read comes before the first write, so a foreign value under one of our
-- keys refuses the script whole; the first write is a trim that trims nothing,
-- so a script that frees memory also runs when the store is full.
-- Returns nil when the partition has no entries (it is forgotten then), else a
-- table: head, tail; from, to, cuts, attempt while a range is held; token and
-- lease (its length, ms) while it is leased.
local function open(q, ready, m, ledger, partition, known, now_us)
  local length = redis.call('LLEN', q)
  local v = redis.call('HMGET', m, 'head', 'tail', 'from', 'to', 'cuts', 'attempt', 'token', 'lease')
  local mark = tonumber(redis.call('HGET', ledger, 'high_water') or '0')
  local head, tail, from = tonumber(v[1]), tonumber(v[2]), tonumber(v[3])

  redis.call('LTRIM', q, 0, -1)
  if not head or not tail then
    redis.call('DEL', m)
    if length == 0 then
      redis.call('ZREM', ready, partition)
      return nil
    end
    -- A list without its hash. Where the active set knows the partition its
    -- entries were accepted once; else a stranger made the list.
    head = math.max(now_us, mark)
    tail = head + length
    redis.call('HSET', m, 'head', int(head), 'tail', int(tail), 'birth', int(head))
    if not known then
      redis.call('HINCRBY', ledger, 'accepted', int(length))
    end
    return { head = head, tail = tail }
  end

  head, tail, from = reconcile(m, ledger, head, tail, from, length)
  if head == tail then
    die(ready, m, ledger, partition, tail)
    return nil
  end
  return {
    head = head, tail = tail, from = from, to = tonumber(v[4]),
    cuts = v[5] or '', attempt = tonumber(v[6] or '0'), token = v[7], lease = tonumber(v[8] or '0'),
  }
end
