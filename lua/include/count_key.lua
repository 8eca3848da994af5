-- count_key: count one key that is kept for some ms. It counts until the next multiple of
-- a power of two, in s: for as long as Redis keeps it, and up to a quarter, or 1 s,
-- longer. So there are few different ends.
local function count_key(ends, now, keep)
  local step = 1
  while step * 8000 <= keep do
    step = step * 2
  end
  local at = math.ceil((now + keep) / 1000 / step) * step
  ends[at] = (ends[at] or 0) + 1
end
