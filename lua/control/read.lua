-- read: the control document, or what changed in it since a version.
--
-- Who has no copy gets all of it, and so does who has a copy of another document: the
-- epoch differs, or its version is higher because Redis went back. Of a newer format
-- it answers only the number.
--
-- KEYS[1] hash      the document: format, version, epoch, entries, bytes, floor, and the entries, whose names have a colon
-- KEYS[2] zset      names of entries by the version that changed them last; deleted ones since floor, too
-- ARGV[1] int       version of the reader's copy; 0 = none
-- ARGV[2] string    epoch of the reader's copy
-- ARGV[3] int       newest format that the reader understands
-- RETURNS {now, format, version, epoch, 0, name, value...}  what changed after the reader's version; an empty value = deleted
-- RETURNS {now, format, version, epoch, 1, name, value...}  all; version 0: there is no document
--
-- USES whole, int, time
local doc, changes = KEYS[1], KEYS[2]
local since, newest = whole(ARGV[1], 0), whole(ARGV[3], 1)
if not (since and newest) then
  return redis.error_reply('ERR read: bad arguments')
end

local now = time()
local v = redis.call('HMGET', doc, 'format', 'version', 'epoch', 'floor')
local format, version, floor = whole(v[1] or 0, 0), whole(v[2] or 0, 0), whole(v[4] or 0, 0)
if not (format and version and floor) then
  return redis.error_reply('ERR the control document holds a foreign value')
end
local all = since < floor or since > version or since == 0 or v[3] ~= ARGV[2]
local result = { now, format, version, v[3] or '', all and 1 or 0 }
if format > newest or version == 0 then
  return result
end
if all then
  local fields = redis.call('HGETALL', doc)
  for i = 1, #fields, 2 do
    if string.find(fields[i], ':', 1, true) then
      result[#result + 1] = fields[i]
      result[#result + 1] = fields[i + 1]
    end
  end
  return result
end
if since < version then
  for _, name in ipairs(redis.call('ZRANGE', changes, int(since + 1), '+inf', 'BYSCORE')) do
    result[#result + 1] = name
    result[#result + 1] = redis.call('HGET', doc, name) or ''
  end
end
return result
