-- stats: describe one partition; writes nothing.
--
-- KEYS[1] list      entries of the partition, oldest first
-- KEYS[2] zset      active partitions of the shard by due time, ms
-- KEYS[3] hash      the partition's sequences and range
-- ARGV[1] string    partition name, the member of KEYS[2]
-- RETURNS {now, 0}  the partition has no entries
-- RETURNS {now, depth, leased, age, accepted, evicted, expired}  leased 1 or 0; age of the
--                   oldest entry in ms; the last three count since the partition last was empty
--
-- USES time
local q, ready, m = KEYS[1], KEYS[2], KEYS[3]
local partition = ARGV[1]

local now = time()
local depth = redis.call('LLEN', q)
if depth == 0 then
  return { now, 0 }
end
local due = tonumber(redis.call('ZSCORE', ready, partition))
local v = redis.call('HMGET', m, 'head', 'tail', 'birth', 'settled', 'expired', 'token')
local head, tail, birth = tonumber(v[1]), tonumber(v[2]), tonumber(v[3])
local settled, expired = tonumber(v[4] or '0'), tonumber(v[5] or '0')
local oldest = string.match(redis.call('LINDEX', q, 0), '^%d%d%d%d%d%d%d%d%d%d%d%d%d')
local age = oldest and math.max(0, now - tonumber(oldest)) or 0
if not (head and tail and birth) then
  return { now, depth, 0, age, depth, 0, 0 }
end
local leased = (v[6] and due and due > now) and 1 or 0
-- An entry that left the old end without being settled or expired was evicted.
return { now, depth, leased, age, tail - birth, head - birth - settled - expired, expired }
