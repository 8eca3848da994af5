-- register: note that an owner lives, with the version of its code, for a time; its schedules fire while that lasts.
--
-- It only ever prolongs, so a late call does no harm; a version never falls, so a rolling deploy cannot bring old schedules
-- back.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      owners by when their registration ends, ms
-- KEYS[3] hash      of the owner: version, and "<name> <queue>" of each of its schedules → the version that put it
-- ARGV[1] string    owner
-- ARGV[2] string    version; '' = that which is registered: a heartbeat
-- ARGV[3] ms        from now on; 0 = the registration ends, and the version stays
-- ARGV[4] int       owners that the shard may have
-- RETURNS {now, status, until, version}  1 done. Rejected: 0 the owner is not registered, 4 too many owners, 7 the namespace is
--                   being deleted, 9 a newer version is registered
--
-- USES whole, int, time
local ledger, owners, own = KEYS[1], KEYS[2], KEYS[3]
local version, ttl, max = ARGV[2], whole(ARGV[3], 0), whole(ARGV[4], 0)
if #KEYS ~= 3 or #ARGV ~= 4 or not (ttl and max) or version ~= '' and not whole(version, 0) then
  return redis.error_reply('ERR register: bad arguments')
end
local now = time()
local before = whole(redis.call('HGET', own, 'version') or 0, 0) or 0
local till = tonumber(redis.call('ZSCORE', owners, ARGV[1]) or -1)
local closed = redis.call('HGET', ledger, 'closed')
if (tonumber(closed or 0) or 0) > now then
  return { now, 7, 0, before }
elseif version == '' and (till < 0 or ttl > 0 and till == 0) then
  return { now, 0, 0, before }
elseif version ~= '' and whole(version, 0) < before then
  return { now, 9, till, before }
elseif till < 0 and redis.call('ZCARD', owners) >= max then
  return { now, 4, 0, before }
end
redis.call('ZREM', owners, '') -- of nothing: a full store rejects a first write that needs memory
if ttl == 0 then
  till = 0
else
  till = math.max(till, now + ttl)
end
redis.call('ZADD', owners, int(till), ARGV[1])
if version ~= '' then
  redis.call('HSET', own, 'version', version)
  before = whole(version, 0)
end
return { now, 1, till, before }
