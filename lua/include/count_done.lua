-- count_done: how many entries of [lo, hi) the sink accepted in an earlier
-- presentation. done and to: see read_meta.
local function count_done(done, to, lo, hi)
  if not (done and to) then
    return 0
  end
  local first, last = #done - (to - lo) + 1, #done - (to - hi)
  if last < 1 then
    return 0
  end
  local _, n = string.gsub(string.sub(done, math.max(first, 1), last), '1', '1')
  return n
end
