-- pause_schedule: stop a schedule from firing, or let it go on. Ticks in between count as paused.
--
-- KEYS[1] hash      states of the shard's schedules
-- KEYS[2] zset      active schedules by when they deserve a look, ms
-- ARGV[1] string    "<name> <queue>"
-- ARGV[2] int       1 = pause, 0 = resume
-- RETURNS {now, status, revision}  1 done, 2 it was so before, 3 it has ended, 0 there is none
--
-- USES int, time, read_state, write_state
if #KEYS ~= 2 or #ARGV ~= 2 then
  return redis.error_reply('ERR pause_schedule: bad arguments')
end
local now = time()
local text = redis.call('HGET', KEYS[1], ARGV[1])
local s = text and read_state(text)
if not s then
  return { now, 0, 0 }
elseif s.flag == 'e' then
  return { now, 3, s.rev }
elseif (s.flag == 'p') == (ARGV[2] == '1') then
  return { now, 2, s.rev }
end
s.rev = s.rev + 1
if ARGV[2] == '1' then
  redis.call('ZREM', KEYS[2], ARGV[1]) -- first: a full store rejects a first write that needs memory
  s.flag = 'p'
  if s.waiting > 0 then
    s.waiting, s.paused = 0, s.paused + 1
  end
else
  s.flag, s.till = 'a', now
  redis.call('ZADD', KEYS[2], int(now), ARGV[1])
end
redis.call('HSET', KEYS[1], ARGV[1], write_state(s, 5))
return { now, 1, s.rev }
