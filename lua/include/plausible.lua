-- plausible: whether Spillway can have written head and tail: a list holds at most
-- 10,000,000 entries and those that one call adds. evicted is by how much the caller
-- moved head before it counted the entries that something other than Spillway pushed.
local function plausible(head, tail, evicted)
  return head and tail and tail + evicted >= head and tail - head <= 100000000
end
