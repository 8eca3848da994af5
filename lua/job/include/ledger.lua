-- open_ledger: read the totals of the shard, before anything is written. Returns nil and
-- an error where the ledger holds a foreign value. Else a table of what the call adds to
-- each total; was holds the totals themselves, ends and slots what open_spare returns. n is how many
-- keys the verb has by itself; nil: it ends neither jobs nor leases.
local function open_ledger(ledger, n)
  local names = { 'acked', 'expired', 'deleted', 'lost', 'dead', 'died', 'respawned' }
  local v = redis.pcall('HMGET', ledger, 'acked', 'expired', 'deleted', 'lost', 'dead', 'died', 'respawned', 'watched', 'limited')
  if foreign(v) then
    return nil, v
  end
  local totals = { was = {}, names = names }
  for i, name in ipairs(names) do
    local value = tonumber(v[i] or 0)
    if not value or value % 1 ~= 0 or value <= -9007199254740992 or value >= 9007199254740992 then
      return nil, redis.error_reply('ERR the ledger holds a foreign value')
    end
    totals.was[name], totals[name] = value, 0
  end
  if n and (v[8] or v[9]) then
    -- WITH open_spare
    local rejected
    totals.ends, totals.slots, rejected = open_spare(ledger, v[8], v[9], n)
    if rejected then
      return nil, rejected
    end
  end
  return totals
end

-- close_ledger: write the totals that the call changes, and give back the slots of leases that it ended.
local function close_ledger(ledger, totals)
  local changed = {}
  for _, name in ipairs(totals.names) do
    if totals[name] ~= 0 then
      changed[#changed + 1] = name
      changed[#changed + 1] = int(totals.was[name] + totals[name])
    end
  end
  if #changed > 0 then
    redis.call('HSET', ledger, unpack(changed))
  end
  if totals.ends then
    totals.ends.tell()
  end
  if totals.slots then
    totals.slots.close()
  end
end

-- check_shard: reject the call, before anything is written, where a key of the shard has
-- another type. Returns nil and an error then, else the totals of open_ledger. The first
-- write is an HDEL that removes nothing: it needs no memory, so the call runs when the
-- store is full.
local function check_shard(ledger, lease, attempts, queues, delay, tombstones, n)
  local totals, rejected = open_ledger(ledger, n)
  if not totals then
    return nil, rejected
  end
  redis.call('ZCARD', lease)
  redis.call('ZCARD', queues)
  redis.call('ZCARD', delay)
  redis.call('HLEN', tombstones)
  redis.call('HDEL', attempts, '')
  return totals
end
