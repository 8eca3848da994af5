-- publish: store jobs of any number of queues, ready or delayed, each group whole or not at all.
--
-- Sequences are the shard's clock in µs, but always rise: the sequence of a job tells
-- when it was published, and never repeats while the store lives. A caller's id of a job
-- whose ttl is over is free, also before anything found that job: the publish ends it.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      delayed jobs by due time, ms; prepared ones by minus the time when their publisher is asked
-- KEYS[3] zset      queues that have jobs, by when their head deserves a look, ms
-- KEYS[4] zset      leases by deadline, ms
-- KEYS[5] hash      attempts of jobs that were claimed before
-- KEYS[6] hash      tombstones, by queue
-- KEYS[7..] mixed   of each queue: list of ready, hash of jobs, zset of dead, hash of callers' ids; then results of keyed
--                   groups, strings
-- ARGV[1] int       jobs that the shard may hold
-- ARGV[2] int       queues that the shard may hold
-- ARGV[3] int       results of keyed groups that the shard may keep
-- ARGV[4] string    beginning of the channels that wake who waits
-- ARGV[5] string    the command that wakes: publish, or spublish in a cluster
-- ARGV[6] int       queues, n
-- ARGV[7..] mixed   n names, each once; then groups: queue's number, delay ms, 0 or the number of its result among
--                   KEYS, how long that is kept, ms, caller's id or '' (only of one job), and behind a line feed, where the ends of its
--                   jobs set something off, that; before it, where the job is unique for a while, u<number of its result> <ms>,
--                   only of one job: lines s<schedule>, q<queue>, c<caller's id>; count, records; count 0 only asks what is
--                   under its keys or id. A first line
--                   p<pause> <times> <delay> <queue> says that its jobs are prepared: see ask; the delay of the group is the pause
-- RETURNS {now, status, first, count...}  for each group: 1 stored; 2 stored before under its key, count jobs; 3 a job with
--                   that caller's id exists, or one was stored under its unique key; with the first sequence. Rejected: 0 too many queues, 4 too many jobs, 5 the call
--                   read 4 MiB of jobs with callers' ids, 6 too many results, 7 the namespace is being deleted, 9 there is nothing
--                   to store, -1 a key of another type; with 0, 0
--
-- USES whole, int, time, read_keys, count_key, keys_text, seq_text, foreign, in_pieces, wake
local ledger, delay, queues, lease, attempts, tombstones = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local max_jobs, max_queues, max_keys = whole(ARGV[1], 0), whole(ARGV[2], 0), whole(ARGV[3], 0)
local channel, command, n = ARGV[4], ARGV[5], whole(ARGV[6], 1)
local rest = 3600000 -- ms until the head of a queue is looked at, where it never expires
if not (max_jobs and max_queues and max_keys and n) or #KEYS < 6 + 4 * n then
  return redis.error_reply('ERR publish: bad arguments')
end

local now, now_us = time()
local account = redis.call('HMGET', ledger, 'seq', 'published', 'acked', 'expired', 'deleted', 'lost', 'closed', 'watched',
  'limited')
for i = 1, 6 do
  account[i] = whole(account[i] or 0, 0)
  if not account[i] then
    return redis.error_reply('ERR the ledger holds a foreign value')
  end
end
local seq, published = math.max(now_us, account[1] + 1), account[2]
local live = published - account[3] - account[4] - account[5] - account[6]
local closed = (tonumber(account[7] or 0) or 0) > now
local key_ends, kept_keys, counted -- what read_keys returns, once a group has a new key; whether one is stored
local known
local held, blocked = {}, {}
for i = 1, n do
  held[i] = redis.pcall('HLEN', KEYS[4 + 4 * i])
  blocked[i] = foreign(held[i])
end

-- Judge the groups; nothing is written yet.
local result, plan = { now }, {}
local ids, keyed, read = {}, {}, 0
local watched, base = account[8], 6 + 4 * n
local at, args = 7 + n, #ARGV

-- remembered is what was stored under a key, by an earlier call or group.
local function remembered(key)
  local text = keyed[KEYS[key]] or redis.pcall('GET', KEYS[key])
  if not text and not key_ends then
    key_ends, kept_keys = read_keys(redis.call('HGET', ledger, 'keys'), now)
  end
  return text
end

-- remember notes what is stored under a key from now on.
local function remember(key, ms, count)
  count_key(key_ends, now, ms)
  kept_keys, counted = kept_keys + 1, true
  keyed[KEYS[key]] = seq_text(seq) .. ' ' .. int(count)
end

-- judge_id says what the job with a caller's id is: its sequence, where there is one; whether it expired, then the
-- job that takes the id ends it; and the status of a group that is rejected because of it.
local function judge_id(i, id)
  -- WITH ends_of, is_over
  local seq = redis.pcall('HGET', KEYS[6 + 4 * i], id)
  if foreign(seq) then
    return nil, false, -1
  elseif not seq then
    return nil
  elseif read >= 4194304 then
    return nil, false, 5
  end
  local record = redis.call('HGET', KEYS[4 + 4 * i], seq)
  if not record then
    return nil -- something other than Spillway removed the job
  end
  read = read + #record
  if not is_over(record, now) then
    return seq
  end
  local leased, dead = redis.pcall('ZSCORE', lease, seq .. ' ' .. ARGV[6 + i]), redis.pcall('ZSCORE', KEYS[5 + 4 * i], seq)
  if foreign(leased) or foreign(dead) or foreign(redis.pcall('ZCARD', delay)) or foreign(redis.pcall('HLEN', attempts))
    or foreign(redis.pcall('HLEN', tombstones)) then
    return nil, false, -1
  end
  return seq, not dead and tonumber(leased or 0) <= now
end

while at <= args do
  local i, wait, key, keep = whole(ARGV[at], 1), whole(ARGV[at + 1], 0), whole(ARGV[at + 2], 0), whole(ARGV[at + 3], 0)
  local id, count, watch, unique, window = ARGV[at + 4], whole(ARGV[at + 5], 0), false, 0, 0
  if id and id ~= '' and string.find(id, '\n', 1, true) then
    id, watch = string.match(id, '^(.-)\n(.*)$')
    local result, span, rest = string.match(watch, '^u(%d+) (%d+)\n(.*)$')
    if result then
      unique, window, watch = tonumber(result), tonumber(span), rest ~= '' and rest
    end
    watched = watched or watch and true
  end
  local prepared = watch and string.sub(watch, 1, 1) == 'p'
  if not (i and wait and key and keep and count) or i > n or at + 5 + count > args or (id ~= '' or unique > 0) and count > 1 or prepared and wait == 0
    or count == 0 and key + unique == 0 and id == '' or key > 0 and (key <= 6 + 4 * n or key > #KEYS or keep == 0)
    or unique > 0 and (unique <= 6 + 4 * n or unique > #KEYS or window == 0) then
    return redis.error_reply('ERR publish: bad arguments')
  end
  local before, double, lives, over, rejection
  local wrong = blocked[i]
  if key > 0 or unique > 0 or id ~= '' then
    -- Other groups of the call may name this one in their answer, so it must not fail later.
    wrong = wrong or foreign(redis.pcall('LLEN', KEYS[3 + 4 * i])) or wait > 0 and foreign(redis.pcall('ZCARD', delay))
  end
  if key > 0 then
    before = remembered(key)
    wrong = wrong or foreign(before)
  end
  if unique > 0 and not before then
    double = remembered(unique)
    wrong = wrong or foreign(double)
  end
  if id ~= '' and not wrong and not before and not double then
    lives = ids[i .. ' ' .. id]
    if not lives then
      lives, over, rejection = judge_id(i, id)
    end
  end
  local status, first, stored = 1, seq, count
  local birth = held[i] == 0
  if wrong then
    status, first, stored = -1, 0, 0
  elseif closed then
    status, first, stored = 7, 0, 0
  elseif before or double then
    local f, c = string.match(before or double, '^(%d+) (%d+)$')
    if f then
      status, first, stored = before and 2 or 3, tonumber(f), tonumber(c)
    else
      status, first, stored = -1, 0, 0
    end
  elseif rejection then
    status, first, stored = rejection, 0, 0
  elseif lives and not over then
    status, first, stored = 3, tonumber(lives), 1
  elseif count == 0 then
    status, first, stored = 9, 0, 0
  elseif live + count - (over and 1 or 0) > max_jobs then
    status, first, stored = 4, 0, 0
  elseif key + unique > 0 and kept_keys + math.min(key, 1) + math.min(unique, 1) > max_keys then
    status, first, stored = 6, 0, 0
  else
    if birth and not known then
      known = redis.call('ZCARD', queues)
    end
    if birth and known + 1 > max_queues then
      status, first, stored = 0, 0, 0
    else
      -- Set when a queue begins and when its head is looked at, not at each push, which would cost a
      -- ZADD. So an unclaimed job that comes to an empty list with a shorter ttl expires by the expirer.
      local look
      if birth then
        known = known + 1
        local ends = tonumber(string.sub(ARGV[at + 6], 1, 13)) or 0
        look = ends > 0 and math.min(ends, now + rest) or now + rest
      end
      held[i] = held[i] + count
      live, published = live + count - (over and 1 or 0), published + count
      if id ~= '' then
        ids[i .. ' ' .. id] = seq
      end
      if key > 0 then
        remember(key, keep, count)
      end
      if unique > 0 then
        remember(unique, window, 1)
      end
      plan[#plan + 1] = { i = i, wait = wait, key = key, keep = keep, id = id, count = count, at = at + 6, seq = seq, look = look,
        over = over and lives, result = #result + 1, watch = watch, prepared = prepared, unique = unique, window = window }
      seq = seq + count
    end
  end
  local m = #result
  result[m + 1], result[m + 2], result[m + 3] = status, first, stored
  at, base = at + 6 + count, math.max(base, key, unique)
end
local ends, slots, missing
if watched or account[9] then
  -- WITH open_spare
  ends, slots, missing = open_spare(ledger, watched, account[9], base)
end
if missing then
  return missing
elseif #plan == 0 then
  return result
end
if seq >= 9007199254740992 then
  return redis.error_reply('ERR the ledger holds a foreign value')
end

-- The first write: a store that is full rejects it.
local totals = { 'seq', seq_text(seq - 1), 'published', int(published) }
if counted then
  totals[5], totals[6] = 'keys', keys_text(key_ends)
end
redis.call('HSET', ledger, unpack(totals))
if watched and not account[8] then
  -- WITH watch_jobs
  watch_jobs(ledger)
end

-- All of a queue in one command each, all delayed in one: the fixed cost of a command
-- is what many small requests would pay for otherwise.
local fields, refs, due, looks = {}, {}, {}, {}
for i = 1, n do
  fields[i], refs[i] = { {}, {} }, {}
end
local d = 0
for _, g in ipairs(plan) do
  local name, r = ARGV[6 + g.i], refs[g.i]
  local f = fields[g.i][g.wait > 0 and 2 or 1]
  local x, y = #f, #r
  local at_ms = g.wait > 0 and int(now + g.wait)
  if g.prepared then
    at_ms = '-' .. at_ms
  end
  for k = 0, g.count - 1 do
    local ref = seq_text(g.seq + k)
    f[x + 1], f[x + 2], x = ref, ARGV[g.at + k], x + 2
    if at_ms then
      due[d + 1], due[d + 2], d = at_ms, ref .. ' ' .. name, d + 2
    else
      r[y + 1], y = ref, y + 1
    end
  end
  looks[g.i] = looks[g.i] or g.look
end

-- reject takes groups back where a key has another type. That saves looking at each
-- key first. The other groups stand.
local function reject(i, delayed)
  for _, g in ipairs(plan) do
    if (g.i == i or not i) and (g.wait > 0) == delayed then
      redis.call('HINCRBY', ledger, 'published', -g.count)
      result[g.result], result[g.result + 1], result[g.result + 2], g.rejected = -1, 0, 0, true
    end
  end
end

local delayed = d == 0 or not foreign(in_pieces(redis.pcall, 'ZADD', delay, due))
if not delayed then
  reject(nil, true)
end
for i = 1, n do
  local pushed, length = #refs[i], 0
  if pushed > 0 then
    length = in_pieces(redis.pcall, 'RPUSH', KEYS[3 + 4 * i], refs[i])
    if foreign(length) then
      reject(i, false)
      pushed = 0
    else
      in_pieces(redis.call, 'HSET', KEYS[4 + 4 * i], fields[i][1])
    end
  end
  local later = delayed and #fields[i][2] > 0
  if later then
    in_pieces(redis.call, 'HSET', KEYS[4 + 4 * i], fields[i][2])
  end
  if looks[i] and (pushed > 0 or later) then
    redis.call('ZADD', queues, int(looks[i]), ARGV[6 + i])
  end
  if pushed > 0 then
    wake(command, channel, ARGV[6 + i], length, pushed)
  end
end
for _, g in ipairs(plan) do
  if not g.rejected then
    if g.over then
      local base = 3 + 4 * g.i
      local k = { lease = lease, attempts = attempts, delay = delay, tombstones = tombstones, j = KEYS[base + 1], d = KEYS[base + 2],
        u = KEYS[base + 3], r = KEYS[base] }
      -- WITH drop_id, drop_errors, remove
      remove(k, { slots = slots }, ARGV[6 + g.i], g.over, g.id)
      redis.call('HINCRBY', ledger, 'expired', 1)
      if ends then
        ends.ended(ARGV[6 + g.i], g.over, 'expired')
      end
    end
    if g.id ~= '' then
      redis.call('HSET', KEYS[6 + 4 * g.i], g.id, seq_text(g.seq))
    end
    if g.watch then
      local list = {}
      for y = 0, g.count - 1 do
        list[2 * y + 1], list[2 * y + 2] = seq_text(g.seq + y) .. ' ' .. ARGV[6 + g.i], g.watch
      end
      in_pieces(redis.call, 'HSET', ends.on_end, list)
    end
    if g.unique > 0 then
      redis.call('SET', KEYS[g.unique], seq_text(g.seq) .. ' 1', 'PX', g.window)
    end
    if g.key > 0 then
      redis.call('SET', KEYS[g.key], seq_text(g.seq) .. ' ' .. int(g.count), 'PX', g.keep)
    end
  end
end
if ends then
  ends.tell()
end
if slots then
  slots.close()
end
return result
