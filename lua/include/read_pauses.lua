-- read_pauses: which partitions of a call are paused; argv holds their names from
-- position first on. Returns whether the whole namespace is, and a table that is true
-- at i where the i-th partition is. It reads nothing while nothing of the shard is paused.
local function read_pauses(shard, ledger, argv, first)
  local paused = {}
  if not shard.paused then
    return false, paused
  end
  local fields = { 'pause:*' }
  for i = first, #argv do
    fields[#fields + 1] = 'pause:' .. argv[i]
  end
  local v = redis.call('HMGET', ledger, unpack(fields))
  for i = 2, #fields do
    paused[i - 1] = v[i] and true
  end
  return v[1] and true, paused
end
