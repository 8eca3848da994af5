-- is_stale: whether an entry's time is before cutoff (ms), or no time at all.
local function is_stale(entry, cutoff)
  return not (string.find(entry, '^%d%d%d%d%d%d%d%d%d%d%d%d%d[ #]') and tonumber(string.sub(entry, 1, 13)) >= cutoff)
end
