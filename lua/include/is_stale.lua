-- is_stale: whether an entry's time is before cutoff (ms), or no time at all.
local function is_stale(entry, cutoff)
  local form = string.byte(entry, 14)
  local written = (form == 32 or form == 35) and tonumber(string.sub(entry, 1, 13))
  return not written or written < cutoff
end
