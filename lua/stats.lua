-- stats: describe several partitions of one shard; writes nothing.
--
-- Every partition has its own answer, in the order of the call. A foreign value under
-- the keys of one partition affects that partition only. To learn the age of the oldest
-- entry it has to read that entry whole, so it stops after 512 KiB of them.
--
-- KEYS[1] zset      active partitions of the shard by due time, ms
-- KEYS[2..] list,hash  of each partition: its entries, oldest first; its sequences and range
-- ARGV[1..] string  of each partition: its name, the member of KEYS[1]
-- RETURNS {now, answer...}  an answer for each partition, the values of one of these:
-- RETURNS 0                 it has no entries
-- RETURNS 1, depth, leased, age, accepted, evicted, expired, due, attempt  leased 1 or 0; age of the oldest
--                           entry in ms; the next three count since the partition last was empty; due time in
--                           ms, 0 = not active; how often its range was presented, 0 = it has none
-- RETURNS 2                 not read: the call has read as much as it may; never the first one
-- RETURNS text              rejected, with the error of Redis
--
-- USES time
local ready = KEYS[1]
if #ARGV == 0 or #KEYS ~= 1 + 2 * #ARGV then
  return redis.error_reply('ERR stats: bad arguments')
end

local now = time()
local scores = redis.call('ZMSCORE', ready, unpack(ARGV))
local result = { now }
local room = 524288 -- bytes that the call may still read

local function describe(q, m, score)
  if room <= 0 then
    result[#result + 1] = 2
    return
  end
  local depth = redis.pcall('LLEN', q)
  if type(depth) == 'table' then
    return depth.err
  end
  local n = #result
  if depth == 0 then
    result[n + 1] = 0
    return
  end
  local v = redis.pcall('HMGET', m, 'head', 'tail', 'birth', 'settled', 'expired', 'token', 'to', 'attempt')
  if v.err then
    return v.err
  end
  local due = tonumber(score or nil)
  local head, tail, birth = tonumber(v[1]), tonumber(v[2]), tonumber(v[3])
  local settled, expired = tonumber(v[4] or '0'), tonumber(v[5] or '0')
  local entry = redis.call('LINDEX', q, 0)
  room = room - #entry
  local oldest = string.match(entry, '^%d%d%d%d%d%d%d%d%d%d%d%d%d')
  local age = oldest and math.max(0, now - tonumber(oldest)) or 0
  local leased, attempt = 0, 0
  local accepted, evicted = depth, 0
  if head and tail and birth then
    leased = (v[6] and due and due > now) and 1 or 0
    -- An entry that left the old end without being settled or expired was evicted.
    accepted, evicted = tail - birth, head - birth - settled - expired
    local to = tonumber(v[7] or nil)
    if to and to > head then -- otherwise a purge, eviction or expiry has dropped the whole range
      attempt = tonumber(v[8] or '1')
    end
  else
    expired = 0
  end
  result[n + 1], result[n + 2], result[n + 3], result[n + 4] = 1, depth, leased, age
  result[n + 5], result[n + 6], result[n + 7], result[n + 8], result[n + 9] = accepted, evicted, expired, due or 0, attempt
end

for i = 1, #ARGV do
  local foreign = describe(KEYS[2 * i], KEYS[1 + 2 * i], scores[i])
  if foreign then
    result[#result + 1] = foreign
  end
end
return result
