-- trigger: publish runs of a schedule now, beside its ticks: one that a caller asks for, or a part of a backfill.
--
-- It works for paused and ended schedules, too, and moves no tick. Repeated under its key it publishes nothing, whatever
-- became of the schedule since. Without runs it only asks what is under its key.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      queues that have jobs, by when their head deserves a look, ms
-- KEYS[3] hash      states of the shard's schedules
-- KEYS[4] string    result under the caller's key
-- KEYS[5] hash      what the ends of jobs set off: see publish
-- KEYS[6] list      ready jobs of the queue
-- KEYS[7] hash      its jobs
-- KEYS[8] zset      its dead jobs
-- ARGV[1] int       jobs that the shard may hold
-- ARGV[2] int       queues that the shard may hold
-- ARGV[3] int       idempotency keys that the shard may keep
-- ARGV[4] string    beginning of the channels that wake who waits
-- ARGV[5] string    the command that wakes: publish, or spublish in a cluster
-- ARGV[6] string    queue
-- ARGV[7] string    name
-- ARGV[8] int       1 = reject while the last run is unfinished, else 0
-- ARGV[9] ms        how long the result is kept; 0 = there is no key
-- ARGV[10] string   '' or what the ends of its jobs set off
-- ARGV[11] int      jobs of a run, m; 0 = there are no runs
-- ARGV[12..] mixed  runs: tick ms, cause (t triggered, b backfilled), m records
-- RETURNS {now, status, first, count}  1 done, 2 done before under its key, with the jobs. Rejected: 0 there is no such
--                   schedule, or there are no runs, 3 the last run is unfinished, 4 too many jobs, 5 too many queues, 6 too many keys, 7 the
--                   namespace is being deleted, -1 a key has another type; with 0, 0
--
-- USES whole, int, time, read_keys, count_key, keys_text, foreign, ends_of, in_pieces, wake, usable, read_state, write_state, add_run, is_unfinished, open_totals, look_at, watch_jobs
local ledger, queues, states, result, r, j, d = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6], KEYS[7], KEYS[8]
local max_jobs, max_queues, max_keys = whole(ARGV[1], 0), whole(ARGV[2], 0), whole(ARGV[3], 0)
local queue, kept, m = ARGV[6], whole(ARGV[9], 0), whole(ARGV[11], 0)
if #KEYS ~= 8 or not (max_jobs and max_queues and max_keys and kept and m) or m > 0 and #ARGV < 13 + m or (#ARGV - 11) % (2 + m) ~= 0
  or m == 0 and (#ARGV > 11 or kept == 0) then
  return redis.error_reply('ERR trigger: bad arguments')
end
local now, now_us = time()
redis.call('HLEN', KEYS[5]) -- a foreign type rejects the call before anything is written
local x, err = open_totals(ledger, now, now_us)
if not x then
  return err
end
local member = ARGV[7] .. ' ' .. queue
local text = redis.call('HGET', states, member)
local s = text and read_state(text)
local before = kept > 0 and redis.pcall('GET', result)
if foreign(before) then
  return { now, -1, 0, 0 }
elseif before then
  local first, count = string.match(before, '^(%d+) (%d+)$')
  return { now, 2, tonumber(first or 0), tonumber(count or 0) }
elseif not s or m == 0 then
  return { now, 0, 0, 0 }
elseif x.closed then
  return { now, 7, 0, 0 }
elseif not usable(r, j, d) then
  return { now, -1, 0, 0 }
end
local ends, keys
if kept > 0 then
  ends, keys = read_keys(redis.call('HGET', ledger, 'keys'), now)
  if keys >= max_keys then
    return { now, 6, 0, 0 }
  end
end
local count = (#ARGV - 11) / (2 + m) * m
local unfinished, birth = is_unfinished(s, j, d), redis.call('HLEN', j) == 0
if unfinished and ARGV[8] == '1' then
  return { now, 3, 0, 0 }
elseif x.live + count > max_jobs then
  return { now, 4, 0, 0 }
elseif birth and redis.call('ZCARD', queues) + 1 > max_queues then
  return { now, 5, 0, 0 }
end

-- The first write: a store that is full rejects it.
local first, totals = x.seq, { 'seq', int(x.seq + count - 1), 'published', int(x.published + count) }
if kept > 0 then
  count_key(ends, now, kept)
  totals[5], totals[6] = 'keys', keys_text(ends)
end
redis.call('HSET', ledger, unpack(totals))
local refs, fields, watches = {}, {}, {}
for at = 12, #ARGV, 2 + m do
  add_run(s, tonumber(ARGV[at]), ARGV[at + 1], x.seq, m)
  for y = 0, m - 1 do
    local ref = int(x.seq + y)
    refs[#refs + 1] = ref
    fields[#fields + 1] = ref
    fields[#fields + 1] = ARGV[at + 2 + y]
    if ARGV[10] ~= '' then
      watches[#watches + 1] = ref .. ' ' .. queue
      watches[#watches + 1] = ARGV[10]
    end
  end
  x.seq = x.seq + m
end
if not unfinished then
  s.first, s.count = first, count -- a run that was forced beside another does not count for overlap
end
redis.call('HSET', states, member, write_state(s, 5))
in_pieces(redis.call, 'HSET', j, fields)
if #watches > 0 then
  watch_jobs(ledger)
  in_pieces(redis.call, 'HSET', KEYS[5], watches)
end
local length = in_pieces(redis.call, 'RPUSH', r, refs)
if birth then
  redis.call('ZADD', queues, look_at(fields[2], now), queue)
end
wake(ARGV[5], ARGV[4], queue, length, count)
if kept > 0 then
  redis.call('SET', result, int(first) .. ' ' .. int(count), 'PX', kept)
end
return { now, 1, first, count }
