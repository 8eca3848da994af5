-- close: end a shard of an older layout for good, once nothing is left in it.
--
-- It ends when it is fenced, no partition is active and the ledger adds up. A closed shard
-- keeps its ledger, its dead letters, and what it remembers of idempotent calls. Its pauses
-- never change again.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      active partitions of the shard by due time, ms
-- ARGV[1] int       layout of the shard
-- ARGV[2] int       1 = also where the ledger does not add up
-- RETURNS {now, 0}  not yet
-- RETURNS {now, 1, mark, text...}  closed, now or before: its mark, and name and text of each pause
--
-- USES whole, time, open_shard, entries_left
local ledger, ready = KEYS[1], KEYS[2]
local own = whole(ARGV[1], 1)
if not own or #ARGV ~= 2 then
  return redis.error_reply('ERR close: bad arguments')
end

local shard, rejected = open_shard(ledger)
if rejected then
  return rejected
end
if shard.fence <= own or ARGV[2] ~= '1' and entries_left(shard) ~= 0 or redis.call('ZCARD', ready) > 0 then
  return { shard.now, 0 }
end
local result = { shard.now, 1, 0 }
local fields = redis.call('HGETALL', ledger)
for i = 1, #fields, 2 do
  local name = string.match(fields[i], '^pause:(.*)$')
  if fields[i] == 'mark' then
    result[3] = whole(fields[i + 1], 0) or 0
  elseif name then
    result[#result + 1] = name
    result[#result + 1] = fields[i + 1]
  end
end
-- The record goes: it would stay in as many ledgers as there ever were shards. Only the first shard
-- of a layout, {ns.0} or {ns.LAYOUT.0-…}, keeps it, in case all else that knew it is lost. This also
-- is the first write, and a full store does not reject that.
redis.call('HDEL', ledger, '', unpack(string.find(ledger, '%.0%-?%w*}:ledger$') and {} or { 'record', 'version' }))
redis.call('HSET', ledger, 'closed', 1)
return result
