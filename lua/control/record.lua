-- record: add a minute to the history of a namespace, unless it is there, or nothing changed within an hour.
--
-- A process whose clock is behind comes with a minute that is over: it is there, or was left out. Where the store's clock went
-- back by an hour or more, the history goes on from there.
-- A full store rejects it, and that minute is missing.
--
-- KEYS[1] list      the history, oldest first, each "<minute> <figures>"
-- KEYS[2] hash      the first ledger, whose field closed says until when the namespace is being deleted
-- ARGV[1] int       the minute, since 1970
-- ARGV[2] string    the figures
-- ARGV[3] int       how many records are kept
-- ARGV[4] ms        how long they are kept after the last one
-- RETURNS {now}
--
-- USES whole, time
local history, ledger, figures = KEYS[1], KEYS[2], ARGV[2]
local minute, most, ttl = whole(ARGV[1], 0), whole(ARGV[3], 1), whole(ARGV[4], 1)
if not minute or not most or not ttl then
  return redis.error_reply('ERR record: bad arguments')
end
local now = time()
local last, same = string.match(redis.call('LINDEX', history, -1) or '', '^(%d+) (.*)$')
local since = last and minute - tonumber(last)
local known = since and (since > -60 and since <= 0 or since > 0 and since < 60 and same == figures)
local closed = not known and redis.call('HGET', ledger, 'closed')
if known or (tonumber(closed or 0) or 0) > now then
  return { now }
end
redis.call('RPUSH', history, ARGV[1] .. ' ' .. figures)
redis.call('LTRIM', history, -most, -1)
redis.call('PEXPIRE', history, ttl)
return { now }
