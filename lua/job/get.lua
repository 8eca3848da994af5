-- get: one job of a queue and its state; for somebody who waits for its end it notes that in on_end, else it writes nothing.
--
-- A job whose ttl is over is none, unless its lease is not, or it is dead. A full store, or a key of another type, takes no note.
--
-- KEYS[1] zset      leases by deadline, ms; the fraction .25 = deferred
-- KEYS[2] zset      delayed jobs by due time, ms
-- KEYS[3] hash      attempts of jobs that were claimed before
-- KEYS[4] hash      jobs of the queue
-- KEYS[5] zset      its dead jobs by the time of death, ms; the fraction is the reason
-- KEYS[6] hash      its callers' ids, why attempts of its jobs failed, and how far they got
-- KEYS[7] hash      for somebody who waits: the shard's ledger
-- KEYS[8] hash      and what ends of jobs set off
-- ARGV[1] string    name of the queue
-- ARGV[2] string    sequence
-- ARGV[3] int       1 = with its payload and attributes, else 0
-- ARGV[4] string    for somebody who waits: publish, or spublish in a cluster, a space, and the channel that the end of the job is told on
-- RETURNS {now, 0}                                none
-- RETURNS {now, 1, state, ms, reason, attempts, record, errors, progress}  state: ready, delayed, prepared, leased or dead; ms: when it is due, its
--                   publisher is asked, the lease ends, it died; 0 where it is ready. reason: why it is dead: see death_reason. Of a
--                   leased one: 1 it is deferred, else 0. attempts: how
--                   often it was claimed; 0 where it is dead. errors: why attempts failed, as settle keeps it, or ''; so is progress: of which attempt, percent and
--                   a text
--
-- USES time, foreign, ends_of, death_reason, await_end
if not (#KEYS == 6 and #ARGV == 3 or #KEYS == 8 and #ARGV == 4) then
  return redis.error_reply('ERR get: bad arguments')
end
local now = time()
local seq, member = ARGV[2], ARGV[2] .. ' ' .. ARGV[1]
local record = redis.call('HGET', KEYS[4], seq)
local ends = ends_of(record)
if not ends then
  return { now, 0 }
end
if ARGV[3] ~= '1' then
  record = (string.match(record, '^%d+ %d+@?[%w_-]*') or '') .. ' '
end
local attempts = tonumber(redis.call('HGET', KEYS[3], member) or 0) or 0
local texts = redis.pcall('HMGET', KEYS[6], '!' .. seq, '%' .. seq)
if foreign(texts) then
  texts = {}
end
local errors, progress = texts[1] or '', texts[2] or ''
local ms = redis.call('ZSCORE', KEYS[1], member)
if ms and (ends == 0 or ends > now or tonumber(ms) > now) then
  await_end(KEYS[7], KEYS[8], member, ARGV[4])
  return { now, 1, 'leased', math.floor(tonumber(ms)), tonumber(ms) % 0.5 >= 0.25 and 1 or 0, math.max(1, attempts), record, errors, progress }
end
ms = redis.call('ZSCORE', KEYS[5], seq)
if ms then
  ms = tonumber(ms)
  return { now, 1, 'dead', math.floor(ms), death_reason(ms), attempts, record, errors, progress }
end
if ends > 0 and ends <= now then
  return { now, 0 }
end
await_end(KEYS[7], KEYS[8], member, ARGV[4])
ms = redis.call('ZSCORE', KEYS[2], member)
if ms then
  ms = tonumber(ms)
  return { now, 1, ms < 0 and 'prepared' or 'delayed', math.floor(math.abs(ms)), 0, attempts, record, errors, progress }
end
return { now, 1, 'ready', 0, 0, attempts, record, errors, progress }
