-- fence: let a shard take no entries from callers who know its own layout only.
--
-- Where the layout is newer than that of the shard, the fence rises to it. The first time,
-- the shard gets its mark: no sequence of it is ever that high. In a shard of layout 1 the
-- ledger then says so to programs from before there were layouts: its format is 4, and lost,
-- which they read as a number, is a word. Every caller leaves the record that it knows.
--
-- KEYS[1] hash      the shard's ledger
-- ARGV[1] int       layout of the shard
-- ARGV[2] int       newest layout that the caller knows
-- ARGV[3] int       version of its record
-- ARGV[4] string    its record
-- ARGV[5] string    kind of the namespace
-- RETURNS {now, fence, mark, record}  the fence, 0 = none; the mark, 0 = none; the record that the
--                   shard knew before, which may be newer
--
-- USES whole, int, time
local ledger = KEYS[1]
local own, layout, version = whole(ARGV[1], 1), whole(ARGV[2], 1), whole(ARGV[3], 0)
if not (own and layout and version) or #ARGV ~= 5 then
  return redis.error_reply('ERR fence: bad arguments')
end

local now, now_us = time()
local v = redis.call('HMGET', ledger, 'fence', 'mark', 'high_water', 'version', 'record', 'lost')
local fence, mark, high = whole(v[1] or 0, 0), whole(v[2] or 0, 0), whole(v[3] or 0, 0)
local known = whole(v[4] or 0, 0)
if not (fence and mark and high and known) then
  return redis.error_reply('ERR the ledger holds a foreign value')
end
local set = {}
local function put(field, value)
  set[#set + 1] = field
  set[#set + 1] = value
end
if version > known then
  put('version', version)
  put('record', ARGV[4])
end
if layout > own and layout > fence then
  fence = layout
  put('fence', fence)
  if mark == 0 then
    mark = math.max(now_us, high) + 68719476736
    put('mark', int(mark))
    if own == 1 then
      put('format', 4)
      put('kind', ARGV[5])
      put('lost', 'moved')
      put('lost_count', v[6] or 0)
    end
  end
end
if #set > 0 then
  redis.call('HDEL', ledger, '') -- a full store rejects a script whose first write takes memory
  redis.call('HSET', ledger, unpack(set))
end
return { now, fence, mark, v[5] or '' }
