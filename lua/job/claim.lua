-- claim: hand ready jobs out, each under a lease of its own.
--
-- A request names queues, the most wanted first, and how many jobs it takes at most.
-- What expired is dropped on the way, and references without a job are skipped. Where a
-- request gets fewer jobs than it asks for, its lists are empty, or the call met its
-- bounds: the answer is full, all requests together have 1,000 jobs, or it dropped and
-- skipped 1,000. KEYS[5] keeps what
-- this call hands out until the lane's next call, so that revert can take back a call whose
-- answer got lost.
--
-- The .5 of a last try saves reading the record when a lease lapses or a job is nacked, and survives touch. It needs
-- deadlines below 2⁵² ms, so ttr is at most 10¹² ms.
--
-- A rate is a bucket of burst jobs, which refills by one every pause, in ns. It is kept as one number (GCRA), which all
-- processes share: when the bucket is full again. A clock that goes back empties it at most.
--
-- A limit bounds the leases of a queue. Only claim leases, so it counts what it hands out, and every verb that ends a lease counts
-- down (open_slots).
--
-- Of a queue that is paused nothing is handed out, and left is 0: the resume wakes who waits. What lists of ready jobs
-- count (see list) goes on while somebody pages through one. Where neither is there, one EXISTS tells.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      leases by deadline, ms; .5 = the last try
-- KEYS[3] hash      attempts of jobs that were claimed before
-- KEYS[4] zset      queues that have jobs
-- KEYS[5] string    what the lane's last call handed out
-- KEYS[6] hash      tombstones, by queue
-- KEYS[7] hash      paused queues
-- KEYS[8] hash      what was taken off the heads of lists since somebody began to list them, by queue
-- KEYS[9..] mixed   of each queue: list of ready, hash of jobs, hash of callers' ids; then of each with a rate: string, the µs
--                   when its bucket is full; then, where leases are counted, the spare keys
-- ARGV[1] string    token of this call
-- ARGV[2] ms        how long KEYS[5] is kept
-- ARGV[3] bytes     size of the answer, about, at most; but never less than a job
-- ARGV[4] int       queues, n
-- ARGV[5..] mixed   n names, each once, n times 1 where the caller wants to know what is left, else 0, with the pause and the
--                   burst of its rate behind spaces, 0 where it has none, and then those of a limit: leases, the command that wakes
--                   and the beginning of channels; then requests: ttr ms, count, k, k numbers of queues
-- RETURNS {now, expired, lost, left..., {queue's number, sequence, attempt, record, ...}...}  left: for each queue, where it was
--                   asked for or the call met its bounds there, else 0; -1 where a key has another type and nothing was
--                   claimed of it; less where its rate lets none of them pass for -1 - left ms; -2⁵⁰ where its limit does; then a list for each request
--
-- USES whole, int, time, put_back, foreign, in_pieces
local ledger, lease, attempts, queues, out, tombstones = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local paused, taken = KEYS[7], KEYS[8]
local keep, size, n = whole(ARGV[2], 1), whole(ARGV[3], 1), whole(ARGV[4], 1)
if not (keep and size and n) or #KEYS < 8 + 3 * n then
  return redis.error_reply('ERR claim: bad arguments')
end
local rates, limits, limited, key, forms = {}, nil, {}, 8 + 3 * n, {}
for i = 1, #KEYS > key and n or 0 do
  local text = string.sub(ARGV[4 + n + i] or '', 2)
  local form = forms[text] -- many queues have the same
  if not form then
    local pause, burst, limit = string.match(text, '^ (%d+) (%d+)(.*)$')
    local most, how = string.match(limit or '', '^ (%d+) (%S+ %S+)$')
    form = { pause = whole(pause or '', 1), burst = whole(burst or '', 1), most = tonumber(most or nil), how = how }
    forms[text] = form
  end
  if form.most then
    limited[#limited + 1] = { i = i, name = ARGV[4 + i], most = form.most, how = form.how }
  end
  if form.pause and form.burst then
    key = key + 1
    rates[i] = { key = KEYS[key], pause = form.pause / 1000, burst = form.burst, used = 0 }
  end
end
if (#limited > 0 or key ~= #KEYS) and key + 5 ~= #KEYS then
  return redis.error_reply('ERR claim: bad arguments')
end
local requests, at, args = {}, 5 + 2 * n, #ARGV
while at <= args do
  local ttr, count, k = whole(ARGV[at], 0), whole(ARGV[at + 1], 1), whole(ARGV[at + 2], 1)
  if not (ttr and count and k) or ttr > 1e12 or at + 2 + k > args then
    return redis.error_reply('ERR claim: bad arguments')
  end
  local request = { ttr = ttr, count = count }
  for i = 1, k do
    request[i] = whole(ARGV[at + 2 + i], 1)
    if not request[i] or request[i] > n then
      return redis.error_reply('ERR claim: bad arguments')
    end
  end
  requests[#requests + 1] = request
  at = at + 3 + k
end

if #limited > 0 then
  -- WITH open_limits
  local rejected
  limits, rejected = open_limits(KEYS[key + 5], limited)
  if not limits then
    return rejected
  end
end

local now, now_us = time()
for _, rate in pairs(rates) do
  local size_us = rate.burst * rate.pause
  local full = tonumber(redis.call('GET', rate.key) or 0) or 0
  rate.full, rate.ahead = math.min(math.max(full, now_us), now_us + size_us), full > now_us + size_us
  rate.pass = math.floor((now_us + size_us - rate.full) / rate.pause)
end
local popped = {} -- for each LPOP: queue's number, sequences
local empty, wrong = {}, {}
local expired, missing, dropped, cut = {}, {}, 0, {}
local scores, more, handed = {}, {}, {}
local s, h, bytes, largest = 0, 0, 0, 1
local answers = {}
local heads = {} -- expiry and tries by the beginning of a record, which many share
-- One command tells which of the three there are: attempts count once, paused queues twice, counts of lists four times.
local known = redis.call('EXISTS', attempts, paused, paused, taken, taken, taken, taken)
local again = known % 2 == 1
local names = {}
for i = 1, known > 1 and n or 0 do
  names[i] = ARGV[4 + i]
end
local stopped = known % 4 > 1 and redis.call('HMGET', paused, unpack(names)) or {}
local listed = known > 3 and redis.call('HMGET', taken, unpack(names)) or {}
for i = 1, #stopped do
  empty[i] = stopped[i] and true
end

-- take_back leaves the call without effect.
local function take_back(reply)
  for x = #popped, 1, -1 do
    put_back(KEYS[6 + 3 * popped[x].i], popped[x].ids, 1)
  end
  return reply
end

for a, request in ipairs(requests) do
  local got, g, want = {}, 0, request.count
  local deadline = int(now + request.ttr)
  local last_deadline = deadline .. '.5'
  h = h + 1
  handed[h] = deadline
  for _, i in ipairs(request) do
    local r, j, rate = KEYS[6 + 3 * i], KEYS[7 + 3 * i], rates[i]
    local name, step, limit = ARGV[4 + i], 16, limits and limits[i]
    while want > 0 and s < 2000 and not empty[i] and not wrong[i] and (bytes < size or bytes == 0) and dropped < 1000
      and not (rate and rate.used >= rate.pass) and not (limit and limit.held) do
      step = math.max(1, math.min(want, 1000 - s / 2, step, math.ceil((size - bytes) / largest)))
      if rate then
        step = math.min(step, rate.pass - rate.used)
      end
      if limit then
        step = limits.room(limit, step)
        if step < 1 then
          break
        end
      end
      local ids = redis.pcall('LPOP', r, step)
      if foreign(ids) then
        if not string.find(ids.err, 'WRONGTYPE', 1, true) then
          return take_back(ids) -- the server rejects writes
        end
        wrong[i] = true
        break
      elseif not ids then
        empty[i] = true
        break
      end
      local members, k = {}, #ids
      for x = 1, k do
        members[x] = ids[x] .. ' ' .. name
      end
      local records = redis.pcall('HMGET', j, unpack(ids))
      if foreign(records) then
        put_back(r, ids, 1)
        wrong[i] = true
        break
      end
      popped[#popped + 1] = { i = i, ids = ids }
      local before = again and redis.pcall('HMGET', attempts, unpack(members)) or {}
      if foreign(before) then
        return take_back(before)
      end
      for x = 1, k do
        local record, ends, tries = records[x], nil, nil
        if record then
          local head = string.sub(record, 1, 16)
          local parsed = heads[head]
          if not parsed then
            parsed = { string.match(record, '^(%d+) (%d+)') }
            parsed = { tonumber(parsed[1] or nil), tonumber(parsed[2] or nil) }
            if not tonumber(string.sub(head, 16)) then
              heads[head] = parsed -- one digit of tries, which is usual
            end
          end
          ends, tries = parsed[1], parsed[2]
        end
        if bytes > 0 and bytes >= size then
          -- The answer is full: the rest stays where it was.
          put_back(r, ids, x)
          for y = k, x, -1 do
            ids[y] = nil
          end
          break
        elseif not ends then
          -- A tombstone, or a job that another program removed or spoiled.
          missing[i] = missing[i] or {}
          table.insert(missing[i], ids[x])
          dropped = dropped + 1
        elseif ends > 0 and ends <= now then
          expired[i] = expired[i] or {}
          table.insert(expired[i], { ids[x], record })
          dropped = dropped + 1
        else
          local attempt = 1
          if before[x] then
            attempt = (tonumber(before[x]) or 0) + 1
            more[#more + 1] = members[x]
            more[#more + 1] = int(attempt)
          end
          scores[s + 1] = attempt >= tries and last_deadline or deadline
          scores[s + 2] = members[x]
          s, h = s + 2, h + 1
          handed[h] = members[x]
          got[g + 1], got[g + 2], got[g + 3], got[g + 4] = i, ids[x], attempt, record
          g = g + 4
          bytes, largest = bytes + #record, math.max(largest, #record)
          want = want - 1
          if rate then
            rate.used = rate.used + 1
          end
          if limit then
            limits.take(limit, members[x])
          end
        end
      end
      step = 128
    end
    if want > 0 then
      cut[i] = not empty[i] and 'full' or cut[i] or 'empty'
    end
  end
  answers[a] = got
end

-- All that can be rejected comes before the first write that take_back does not undo.
local totals
if next(expired) or next(missing) then
  local known = redis.pcall('HLEN', tombstones)
  if foreign(known) then
    return take_back(known)
  end
  -- WITH open_ledger
  local rejected
  totals, rejected = open_ledger(ledger, key)
  if not totals then
    return take_back(rejected)
  end
end
if s > 0 then
  local leased = in_pieces(redis.pcall, 'ZADD', lease, scores)
  if foreign(leased) then
    return take_back(leased)
  end
  if #more > 0 then
    in_pieces(redis.call, 'HSET', attempts, more)
  end
  local text = { ARGV[1] }
  for from = 1, h, 1000 do -- more are too many for concat in miniredis
    text[#text + 1] = table.concat(handed, '\n', from, math.min(from + 999, h))
  end
  redis.call('SET', out, table.concat(text, '\n'), 'PX', keep)
end

for _, rate in pairs(rates) do
  if rate.used > 0 or rate.ahead then
    rate.full = math.ceil(rate.full + rate.used * rate.pause)
    redis.pcall('SET', rate.key, int(rate.full), 'PX', int(math.ceil((rate.full - now_us) / 1000)))
  end
end

for i, count in ipairs(listed) do
  for _, p in ipairs(count and popped or {}) do
    count = p.i == i and count + #p.ids or count
  end
  if count and count ~= listed[i] then
    redis.pcall('HSET', taken, ARGV[4 + i], int(count))
  end
end

if limits then
  limits.write(ledger)
end

local result = { now, 0, 0 }
if totals then
  -- WITH close_ledger, caller_id, drop_id, drop_errors, skip_tombstones, forget
  -- drop removes what was met of a queue and is no job any more.
  local function drop(i)
    local r, j, u, name = KEYS[6 + 3 * i], KEYS[7 + 3 * i], KEYS[8 + 3 * i], ARGV[4 + i]
    local fields, members = {}, {}
    for _, job in ipairs(expired[i] or {}) do
      fields[#fields + 1], members[#members + 1] = job[1], job[1] .. ' ' .. name
      drop_id(u, caller_id(job[2]), job[1])
      if totals.ends then
        totals.ends.ended(name, job[1], 'expired')
      end
    end
    totals.expired = totals.expired + #fields
    for _, seq in ipairs(missing[i] or {}) do
      fields[#fields + 1], members[#members + 1] = seq, seq .. ' ' .. name
      if totals.ends then
        totals.ends.ended(name, seq, 'lost')
      end
    end
    in_pieces(redis.call, 'HDEL', j, fields)
    if again then
      in_pieces(redis.call, 'HDEL', attempts, members)
      drop_errors(u, fields)
    end
    if missing[i] then
      totals.lost = totals.lost + skip_tombstones(tombstones, r, name, #missing[i])
    end
    totals.lost = totals.lost + forget(queues, tombstones, r, j, name)
  end

  for i = 1, n do
    if expired[i] or missing[i] then
      drop(i)
    end
  end
  close_ledger(ledger, totals)
  result[2], result[3] = totals.expired, totals.lost
end
for i = 1, n do
  local left = wrong[i] and -1 or 0
  if left == 0 and not stopped[i] and (cut[i] == 'full' or string.sub(ARGV[4 + n + i] or '', 1, 1) == '1') then
    left = redis.call('LLEN', KEYS[6 + 3 * i])
    local rate = rates[i]
    if rate and left > 0 and rate.used >= rate.pass then
      left = -1 - math.max(1, math.ceil((rate.full + rate.pause - rate.burst * rate.pause - now_us) / 1000))
    end
    if limits and limits[i] and left ~= 0 then
      left = limits.left(limits[i], left)
    end
  end
  result[3 + i] = left
end
for a = 1, #answers do
  result[3 + n + a] = answers[a]
end
return result
