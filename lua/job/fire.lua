-- fire: publish the due runs of schedules, and move each schedule on; or change nothing of it.
--
-- The caller read the state of each schedule, and found by its specification what is due. The script goes on only if the
-- state is still, byte by byte, what the caller read. So of many callers one fires; a pause, a put or a delete in between
-- wins; and a repeat does nothing.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      queues that have jobs, by when their head deserves a look, ms
-- KEYS[3] hash      states of the shard's schedules
-- KEYS[4] zset      active schedules by when they deserve a look, ms
-- KEYS[5] hash      what the ends of jobs set off: see publish
-- KEYS[6] zset      owners by when their registration ends, ms
-- KEYS[7..] mixed   of each queue: list of ready, hash of jobs, zset of dead
-- ARGV[1] int       jobs that the shard may hold
-- ARGV[2] int       queues that the shard may hold
-- ARGV[3] string    beginning of the channels that wake who waits
-- ARGV[4] string    the command that wakes: publish, or spublish in a cluster
-- ARGV[5] ms        when the plan was made; it holds for 5 s, and not before: the clock may have gone back
-- ARGV[6] int       queues, n
-- ARGV[7..] mixed   n names, each once; then schedules: queue's number, name, state as read, overlap (allow, skip, buffer), owner
--                   ('' none), '' or what the ends of its jobs set off, runs it may have yet (-1 any), next tick (0 none), next look
--                   ms, ticks that count as missed, as paused, its past, 1 where a rate is not taken yet, k; k runs: tick ms, cause, m, m records. A cause is
--                   a letter: d due, c caught up, w waited
-- RETURNS {now, status, runs, first...}  for each schedule: 1 done, with the number of runs published and the first job of the
--                   last; 3 done, but no run was published: its owner is not registered; 4 done up to a run for which there was
--                   no room: it is due again in a second. Nothing was done: 0 another state, 2 too early or too late, 5 a run can be published, whose rate is to be
--                   taken first, 7 the namespace is being deleted; -1 put off by a minute, as a key has another type
--
-- USES whole, int, time, foreign, ends_of, in_pieces, read_all, wake, usable, read_state, write_state, add_run, is_unfinished, open_totals, look_at, watch_jobs
local ledger, queues, states, due, owners = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6]
local max_jobs, max_queues, made, n = whole(ARGV[1], 0), whole(ARGV[2], 0), whole(ARGV[5], 0), whole(ARGV[6], 1)
if not (max_jobs and max_queues and made and n) or #KEYS ~= 6 + 3 * n then
  return redis.error_reply('ERR fire: bad arguments')
end
local now, now_us = time()
redis.call('HLEN', KEYS[5]) -- a foreign type rejects the call before anything is written
local x, err = open_totals(ledger, now, now_us)
if not x then
  return err
end
local was, known = x.published, redis.call('ZCARD', queues)
local of = {}
for i = 1, n do
  local k = { name = ARGV[6 + i], r = KEYS[4 + 3 * i], j = KEYS[5 + 3 * i], d = KEYS[6 + 3 * i], refs = {}, fields = {} }
  k.usable = usable(k.r, k.j, k.d)
  if k.usable then
    k.birth = redis.call('HLEN', k.j) == 0
  end
  of[i] = k
end

-- fits: whether there is room for m jobs of a queue.
local function fits(k, m)
  if x.live + m > max_jobs then
    return false
  end
  return not k.birth or #k.refs > 0 or known + 1 <= max_queues
end

local watches = {}
local function publish(k, m, at, watch)
  if k.birth and #k.refs == 0 then
    known, k.look = known + 1, look_at(ARGV[at], now)
  end
  local first = x.seq
  for y = 0, m - 1 do
    local ref = int(first + y)
    k.refs[#k.refs + 1] = ref
    k.fields[#k.fields + 1] = ref
    k.fields[#k.fields + 1] = ARGV[at + y]
    if watch ~= '' then
      watches[#watches + 1] = ref .. ' ' .. k.name
      watches[#watches + 1] = watch
    end
  end
  x.seq, x.published, x.live = first + m, x.published + m, x.live + m
  return first
end

-- Read the arguments, then judge the schedules; nothing is written yet.
local list, members = {}, {}
local at, args = 7 + n, #ARGV
while at <= args do
  local f = { k = of[tonumber(ARGV[at])], old = ARGV[at + 2], overlap = ARGV[at + 3], owner = ARGV[at + 4],
    watch = ARGV[at + 5], left = tonumber(ARGV[at + 6]), next_tick = whole(ARGV[at + 7], 0), look = whole(ARGV[at + 8], 0),
    missed = whole(ARGV[at + 9], 0), paused = whole(ARGV[at + 10], 0), past = ARGV[at + 11], unpaid = ARGV[at + 12] == '1' }
  local count = whole(ARGV[at + 13], 0)
  if not (f.k and f.left and f.next_tick and f.look and f.missed and f.paused and count) then
    return redis.error_reply('ERR fire: bad arguments')
  end
  list[#list + 1], members[#members + 1] = f, ARGV[at + 1] .. ' ' .. f.k.name
  at = at + 14
  for i = 1, count do
    local m = whole(ARGV[at + 2], 1)
    if not m or at + 2 + m > args then
      return redis.error_reply('ERR fire: bad arguments')
    end
    f[i] = { tick = tonumber(ARGV[at]), cause = ARGV[at + 1], m = m, at = at + 3 }
    at = at + 3 + m
  end
end
local found = {}
if #list > 0 then
  found = read_all(redis.call, 'HMGET', states, members)
end

local result, plan, seen, put_off = { now }, {}, {}, {}
for y, f in ipairs(list) do
  local k, old, overlap, left, next_tick, look = f.k, f.old, f.overlap, f.left, f.next_tick, f.look
  local member = members[y]
  local status, fired, first = 1, 0, 0
  local s
  if not seen[member] and found[y] == old then
    s = read_state(old)
  end
  if not s or s.flag ~= 'a' then
    status = 0
  elseif now < made or now > made + 5000 then
    status = 2
  elseif x.closed then
    status = 7
  elseif not k.usable then
    status = -1
    put_off[#put_off + 1] = member
  end
  -- Whether a run would overlap the one before it.
  local busy = status == 1 and overlap ~= 'allow' and s.count > 0 and is_unfinished(s, k.j, k.d)
  if status == 1 and f.unpaid and f[1] and left ~= 0 and not busy and fits(k, f[1].m) then
    status = 5
  end
  if status == 1 then
    seen[member] = true
    s.missed, s.paused, s.past = s.missed + f.missed, s.paused + f.paused, f.past
    if f.owner ~= '' and left ~= 0 and (tonumber(redis.call('ZSCORE', owners, f.owner) or -1)) < now then
      status = 3
    end
    for i, run in ipairs(f) do
      local go = left ~= 0
      if go and status == 1 and not busy and not fits(k, run.m) then
        -- The runs before it stand. It stays the next tick, or the one that waits.
        status, look = 4, now + 1000
        if run.cause ~= 'w' then
          next_tick = run.tick
        elseif f[i + 1] then
          next_tick = f[i + 1].tick
        end
        break
      end
      if status == 3 then
        go = false
        s.unregistered = s.unregistered + 1
        if run.cause == 'w' then
          s.waiting = 0
        end
      elseif run.cause == 'w' then
        if busy then
          go = false
        end
        if go then
          s.waiting = 0
        end
      elseif go and busy then
        go = false
        if overlap == 'buffer' and s.waiting == 0 then
          s.waiting = run.tick
        else
          s.overlapped = s.overlapped + 1
        end
      end
      if go then
        first = publish(k, run.m, run.at, f.watch)
        s.first, s.count, s.fired = first, run.m, s.fired + 1
        add_run(s, run.tick, run.cause, first, run.m)
        fired, left = fired + 1, left - 1
        busy = overlap ~= 'allow'
      end
    end
    s.next = next_tick
    if next_tick > made then
      s.till = 0
    end
    if left == 0 then
      if s.waiting > 0 then
        s.superseded = s.superseded + 1
      end
      s.next, s.waiting = 0, 0
    end
    if s.waiting > 0 then
      look = now + 1000
    elseif s.next == 0 then
      s.flag = 'e'
    end
    plan[#plan + 1] = { member = member, s = s, look = look }
  end
  local m = #result
  result[m + 1], result[m + 2], result[m + 3] = status, fired, first
end
if x.seq >= 9007199254740992 then
  return redis.error_reply('ERR the ledger holds a foreign value')
end

-- The first write: a store that is full rejects it.
if x.published > was then
  redis.call('HSET', ledger, 'seq', int(x.seq - 1), 'published', int(x.published))
end
if #watches > 0 then
  watch_jobs(ledger)
  in_pieces(redis.call, 'HSET', KEYS[5], watches)
end
local texts, looks, ends = {}, {}, {}
for _, p in ipairs(plan) do
  texts[#texts + 1] = p.member
  texts[#texts + 1] = write_state(p.s, 5)
  if p.s.flag == 'a' then
    looks[#looks + 1] = int(p.look)
    looks[#looks + 1] = p.member
  else
    ends[#ends + 1] = p.member
  end
end
in_pieces(redis.call, 'HSET', states, texts)
in_pieces(redis.call, 'ZADD', due, looks)
in_pieces(redis.call, 'ZREM', due, ends)
for _, member in ipairs(put_off) do
  redis.call('ZADD', due, 'XX', int(now + 60000), member)
end
for _, k in ipairs(of) do
  if #k.refs > 0 then
    in_pieces(redis.call, 'HSET', k.j, k.fields)
    local length = in_pieces(redis.call, 'RPUSH', k.r, k.refs)
    if k.look then
      redis.call('ZADD', queues, k.look, k.name)
    end
    wake(ARGV[4], ARGV[3], k.name, length, #k.refs)
  end
end
return result
