-- is_stale: whether the time of an entry is before cutoff (ms), or is not a time.
local function is_stale(entry, cutoff)
  local form = string.byte(entry, 14)
  local written = (form == 32 or form == 35) and tonumber(string.sub(entry, 1, 13))
  return not written or written < cutoff
end
