-- change: change entries of the control document, if it still is what the writer read.
--
-- All entries change, or none. The first write of a change that only deletes is HDEL,
-- which a full store does not reject: a token can always be revoked.
--
-- KEYS[1] hash      the document, see read
-- KEYS[2] zset      names of entries by the version that changed them last
-- ARGV[1] int       version that the writer read; 0 = none
-- ARGV[2] string    epoch that the writer read
-- ARGV[3] string    epoch of the document if this makes it
-- ARGV[4] int       format that this makes, and the newest that the writer understands
-- ARGV[5] int       most entries
-- ARGV[6] int       most bytes of names and values
-- ARGV[7] int       most names of deleted entries that are kept; then floor rises to this version
-- ARGV[8..] string  an entry each: name, value; an empty value deletes
-- RETURNS {now, 0, version}  rejected: another version, or another epoch
-- RETURNS {now, 1, version}  changed
-- RETURNS {now, 2, format}   rejected: a newer format
-- RETURNS {now, 3, entries}  rejected: too many entries
-- RETURNS {now, 4, bytes}    rejected: too many bytes
--
-- USES whole, int, time
local doc, changes = KEYS[1], KEYS[2]
local since, newest = whole(ARGV[1], 0), whole(ARGV[4], 1)
local max_entries, max_bytes, max_deleted = whole(ARGV[5], 0), whole(ARGV[6], 0), whole(ARGV[7], 0)
if not (since and newest and max_entries and max_bytes and max_deleted) or #ARGV < 9 or #ARGV % 2 == 0 then
  return redis.error_reply('ERR change: bad arguments')
end

local now = time()
local v = redis.call('HMGET', doc, 'format', 'version', 'epoch', 'entries', 'bytes')
local format, version = whole(v[1] or 0, 0), whole(v[2] or 0, 0)
local entries, bytes = whole(v[4] or 0, 0), whole(v[5] or 0, 0)
redis.call('ZCARD', changes) -- a foreign type rejects the call before anything is written
if not (format and version and entries and bytes) then
  return redis.error_reply('ERR the control document holds a foreign value')
end
if format > newest then
  return { now, 2, format }
end
if version ~= since or version > 0 and v[3] ~= ARGV[2] then
  return { now, 0, version }
end

version = version + 1
local set, deleted, scores = {}, {}, {}
for i = 8, #ARGV, 2 do
  local name, value = ARGV[i], ARGV[i + 1]
  if not string.find(name, ':', 1, true) then
    return redis.error_reply('ERR change: bad arguments')
  end
  local old = redis.call('HGET', doc, name)
  if old then
    entries, bytes = entries - 1, bytes - #name - #old
  end
  if value ~= '' then
    entries, bytes = entries + 1, bytes + #name + #value
    set[#set + 1] = name
    set[#set + 1] = value
  else
    deleted[#deleted + 1] = name
  end
  scores[#scores + 1] = int(version)
  scores[#scores + 1] = name
end
if #set > 0 and entries > max_entries then
  return { now, 3, entries }
end
if #set > 0 and bytes > max_bytes then
  return { now, 4, bytes }
end

if #set > 0 then
  redis.call('HSET', doc, unpack(set))
end
if #deleted > 0 then
  redis.call('HDEL', doc, unpack(deleted))
end
redis.call('HSET', doc, 'format', newest, 'version', int(version), 'epoch', since > 0 and v[3] or ARGV[3],
  'entries', int(math.max(entries, 0)), 'bytes', int(math.max(bytes, 0)))
redis.call('ZADD', changes, unpack(scores))
if redis.call('ZCARD', changes) - entries > max_deleted then
  for _, name in ipairs(redis.call('ZRANGE', changes, 0, -1)) do
    if not redis.call('HGET', doc, name) then
      redis.call('ZREM', changes, name)
    end
  end
  redis.call('HSET', doc, 'floor', int(version))
end
return { now, 1, version }
