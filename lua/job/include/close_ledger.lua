-- close_ledger: write the totals that the call changes.
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
end
