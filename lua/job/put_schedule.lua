-- put_schedule: make a schedule, or replace its specification; the same specification again changes nothing.
--
-- The caller read the state, and found the next tick. A tick that came due in between must not be swallowed: then
-- nothing is done, and the caller fires first.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] hash      states of the shard's schedules
-- KEYS[3] zset      active schedules by when they deserve a look, ms
-- KEYS[4] hash      name → specification, of the queue
-- KEYS[5] hash      of the owner: see register; any key where there is none
-- ARGV[1] string    "<name> <queue>"
-- ARGV[2] string    name
-- ARGV[3] string    state as the caller read it; '' = there was none
-- ARGV[4] string    specification
-- ARGV[5] string    tag of the specification
-- ARGV[6] ms        its first tick; 0 = none
-- ARGV[7] ms        when it deserves its first look
-- ARGV[8] int       schedules that the shard may hold
-- ARGV[9] int       ticks of the specification before that are over and given up; of a pause, that count as paused
-- ARGV[10] ms       when the next of them comes due; 0 = there is none
-- ARGV[11] string   version of the owner that the specification names; '' = none. That the one before was of the same owner, or of
--                   none, the caller knows: the tag in the state is of the owner, too
-- ARGV[12] string   its past
-- RETURNS {now, status, revision}  1 made, 2 replaced, 3 unchanged. Rejected: 0 the state is another one, 4 too many schedules, 6 a
--                   tick has come due since the caller read, 7 the namespace is being deleted, 9 a newer version
--                   of the owner is registered, or none
--
-- USES whole, int, time, foreign, read_state, write_state
local ledger, states, due, specs, own = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local first, look, max = whole(ARGV[6], 0), whole(ARGV[7], 0), whole(ARGV[8], 0)
local given_up, open = whole(ARGV[9], 0), whole(ARGV[10], 0)
if #KEYS ~= 5 or #ARGV ~= 12 or not (first and look and max and given_up and open) then
  return redis.error_reply('ERR put_schedule: bad arguments')
end
local now = time()
local closed = redis.call('HGET', ledger, 'closed')
local text = redis.call('HGET', states, ARGV[1])
if (text or '') ~= ARGV[3] then
  return { now, 0, 0 }
elseif (tonumber(closed or 0) or 0) > now then
  return { now, 7, 0 }
end
local owned = ARGV[11] ~= ''
if owned then
  local registered = whole(redis.call('HGET', own, 'version') or '', 0)
  if not registered or registered > (whole(ARGV[11], 0) or -1) then
    return { now, 9, 0 }
  end
end
local s = text and read_state(text)
local status = 2
if s and s.tag == ARGV[5] then
  if owned then
    redis.call('HSET', own, ARGV[1], ARGV[11])
  end
  return { now, 3, s.rev }
elseif not s then
  if not text and redis.call('HLEN', states) >= max then
    return { now, 4, 0 }
  end
  status = 1
  s = { rev = 0, flag = 'a', till = 0, waiting = 0, first = 0, count = 0, fired = 0, missed = 0, overlapped = 0, paused = 0,
    unregistered = 0, superseded = 0, ok = 0, failed = 0, runs = '' }
end
if first > 0 and first <= now or open > 0 and open <= now then
  return { now, 6, s.rev }
end
if s.flag == 'p' then
  s.paused, given_up = s.paused + given_up, 0
elseif s.flag == 'e' then
  s.flag = 'a'
end
if first == 0 then
  s.flag = 'e'
end
if s.waiting > 0 then
  given_up, s.waiting = given_up + 1, 0
end
s.rev, s.tag, s.next, s.till, s.superseded, s.past = s.rev + 1, ARGV[5], first, 0, s.superseded + given_up, ARGV[12]
if foreign(redis.pcall('HLEN', specs)) or foreign(redis.pcall('ZCARD', due)) then
  return redis.error_reply('WRONGTYPE a key of the schedules holds a value of another type')
end
redis.call('HSET', states, ARGV[1], write_state(s, 5))
redis.call('HSET', specs, ARGV[2], ARGV[4])
if owned then
  redis.call('HSET', own, ARGV[1], ARGV[11])
end
if s.flag == 'a' then
  redis.call('ZADD', due, int(look), ARGV[1])
else
  redis.call('ZREM', due, ARGV[1])
end
return { now, status, s.rev }
