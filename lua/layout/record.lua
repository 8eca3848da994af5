-- record: change what a namespace records of its layouts, if it is still what the caller read.
--
-- KEYS[1] hash      the record: version, floor, and each layout by its number
-- ARGV[1] int       version that the caller read; 0 = there was none
-- ARGV[2] int       the new version
-- ARGV[3..] string  fields and values
-- RETURNS {now, 0}  rejected: another version; nothing was written
-- RETURNS {now, 1}  written
--
-- USES whole, time
local record = KEYS[1]
local read, version = whole(ARGV[1], 0), whole(ARGV[2], 1)
if not (read and version) or #ARGV < 4 or #ARGV % 2 ~= 0 or version <= read then
  return redis.error_reply('ERR record: bad arguments')
end

local now = time()
if whole(redis.call('HGET', record, 'version') or 0, 0) ~= read then
  return { now, 0 }
end
redis.call('HSET', record, 'version', unpack(ARGV, 2))
return { now, 1 }
