-- read_keys: the idempotency keys of a shard that are kept, from the field keys of its
-- ledger. Returns a table of their numbers by the time that each ends to count, in s, and
-- the sum. A foreign value counts nothing.
local function read_keys(text, now)
  local ends, total = {}, 0
  for at, n in string.gmatch(text or '', '(%d+) (%d+)') do
    at, n = tonumber(at), tonumber(n)
    if at * 1000 > now then
      ends[at], total = n, total + n
    end
  end
  return ends, total
end
