-- plausible: whether scripts of ours wrote head and tail: a list holds 10,000,000
-- entries at most, and what one call adds. evicted: by how many the caller has
-- moved head before it counted what something else pushed.
local function plausible(head, tail, evicted)
  return head and tail and tail + evicted >= head and tail - head <= 100000000
end
