-- open_ledger: read the totals of the shard, before anything is written. Returns nil and
-- an error where the ledger holds a foreign value. Else a table of what the call adds to
-- each total; was holds the totals themselves.
local function open_ledger(ledger)
  local names = { 'acked', 'expired', 'deleted', 'lost', 'dead', 'died', 'respawned' }
  local v = redis.pcall('HMGET', ledger, unpack(names))
  if foreign(v) then
    return nil, v
  end
  local totals = { was = {}, names = names }
  for i, name in ipairs(names) do
    local n = tonumber(v[i] or 0)
    if not n or n % 1 ~= 0 or n <= -9007199254740992 or n >= 9007199254740992 then
      return nil, redis.error_reply('ERR the ledger holds a foreign value')
    end
    totals.was[name], totals[name] = n, 0
  end
  return totals
end
