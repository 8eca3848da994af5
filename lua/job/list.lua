-- list: a page of the jobs of a queue that are in a state: ready ones in the order of the list, the others by due time, deadline
-- or time of death, prepared ones by when their publisher is asked, the last first.
--
-- What is paged is a list that workers shorten, or a set of all queues of the shard. So a page of ready jobs begins at a count:
-- that of what was taken off the head since somebody began to list, which claims keep for a while, and the index. Where
-- something else has moved the list, the last job of the page before is looked for nearby. The other pages begin
-- behind a member, which may be gone. A call looks at 2,000 members and about 1 MiB of jobs at most, so a page may be
-- short, or empty, and not the last.
--
-- KEYS[1] zset      leases by deadline, ms
-- KEYS[2] zset      delayed jobs by due time, ms; prepared ones, whose publisher is asked then, below 0
-- KEYS[3] hash      attempts of jobs that were claimed before
-- KEYS[4] hash      what was taken off the heads of lists since somebody began to list them, by queue
-- KEYS[5] list      ready jobs of the queue
-- KEYS[6] hash      its jobs
-- KEYS[7] zset      its dead jobs
-- KEYS[8] hash      its callers' ids, why attempts of its jobs failed, and how far they got
-- ARGV[1] string    name of the queue
-- ARGV[2] string    state: ready, prepared, delayed, leased or dead
-- ARGV[3] int       how many, 1 to 1,000
-- ARGV[4] int       1 = with payloads, else 0
-- ARGV[5] ms        how long claims go on counting
-- ARGV[6] string    where the page begins: '' = at the first; a count, or a score
-- ARGV[7] string    and the last reference, or member, before it
-- RETURNS {now, at, last, sequence, ms, reason, attempts, size, errors, progress, record, ...}  at and last: where the next page begins, '' at
--                   the end, '-1' where nobody knows any more. Then as in get, with 0 attempts where it is dead; size of the payload.
--                   Without payloads records have none, and no attributes
--
-- USES whole, int, time, ends_of, foreign, death_reason, rank_after
local name, state, count, data, keep, at = ARGV[1], ARGV[2], whole(ARGV[3], 1), ARGV[4] == '1', whole(ARGV[5], 1), ARGV[6]
local attempts, taken, r, j, u = KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[8]
local zset = ({ ready = '', prepared = KEYS[2], delayed = KEYS[2], leased = KEYS[1], dead = KEYS[7] })[state]
if #KEYS ~= 8 or #ARGV ~= 7 or not (count and keep and zset) or count > 1000 or at ~= '' and not (tonumber(at) and math.abs(tonumber(at)) < 1e15) then
  return redis.error_reply('ERR list: bad arguments')
end
local now = time()
local result, index, gone = { now, '', '' }, 0, 0
local last, looked, read = ARGV[7], 0, 0
local claimed_before = redis.call('HLEN', attempts) > 0

if state == 'ready' then
  redis.pcall('HDEL', taken, '') -- a first write that needs no memory; a server that rejects writes still lists
  local kept = redis.pcall('HGET', taken, name)
  local lists = redis.pcall('HLEN', taken)
  if kept and not foreign(kept) then
    gone = tonumber(kept) or 0
  elseif redis.call('EXISTS', r) == 1 and not foreign(lists) and lists < 1000 then -- names that somebody makes up take nothing
    redis.pcall('HSET', taken, name, '0')
  end
  redis.pcall('PEXPIRE', taken, int(keep))
  index = at == '' and 0 or tonumber(at) - gone
  if index > 0 and redis.call('LINDEX', r, int(index - 1)) ~= last then
    local from, found = math.max(0, index - 500), nil
    for x, ref in ipairs(redis.call('LRANGE', r, int(from), int(index + 500))) do
      found = found or ref == last and from + x
    end
    if not found and not kept then
      return { now, '-1', '' }
    end
    index = found or index
  end
  index = math.max(0, index)
elseif at ~= '' then
  index = rank_after(zset, at, last)
elseif state == 'delayed' then
  index = redis.call('ZCOUNT', zset, '-inf', '(0')
end

-- show adds a job to the page.
local function show(seq, ms, score)
  local record = redis.call('HGET', j, seq)
  local head, ends = record and string.match(record, '^%d+ %d+@?[%w_-]*'), ends_of(record)
  if not (head and ends) or state ~= 'dead' and ends > 0 and ends <= now and not (state == 'leased' and ms > now) then
    return
  end
  local length, from = string.match(record, '^#(%d+),()', #head + 1)
  local size = #record - (length and from - 1 + length or #head + 1)
  read = read + #record
  local before = state ~= 'dead' and claimed_before and tonumber(redis.call('HGET', attempts, seq .. ' ' .. name) or nil) or 0
  local texts = (state == 'dead' or before > 0) and redis.pcall('HMGET', u, '!' .. seq, '%' .. seq)
  if not texts or foreign(texts) then
    texts = {}
  end
  local reason = 0
  if state == 'dead' then
    reason = death_reason(score)
  elseif state == 'leased' then
    before, reason = math.max(1, before), score % 0.5 >= 0.25 and 1 or 0
  end
  read = read + #(texts[1] or '') + #(texts[2] or '')
  local m = #result
  result[m + 1], result[m + 2], result[m + 3], result[m + 4], result[m + 5] = seq, ms, reason, before, size
  result[m + 6], result[m + 7] = texts[1] or '', texts[2] or ''
  result[m + 8] = data and record or head .. ' '
end

local wanted, more = 3 + 8 * count, true
while more and #result < wanted and looked < 2000 and read < 1048576 do
  local found
  local step = math.min(count, 2000 - looked) - 1
  if state == 'ready' then
    found = redis.call('LRANGE', r, int(index), int(index + step))
  else
    found = redis.call('ZRANGE', zset, int(index), int(index + step), 'WITHSCORES')
  end
  more = #found > 0
  for x = 1, #found, state == 'ready' and 1 or 2 do
    if #result >= wanted or read >= 1048576 then
      break
    end
    local ref = found[x]
    looked, index, last = looked + 1, index + 1, ref
    if state == 'ready' then
      show(ref, 0)
    else
      if state == 'prepared' and tonumber(found[x + 1]) >= 0 then
        more = false
        break
      end
      at = found[x + 1]
      local seq, queue = string.match(ref, '^(%d+) ?(.*)$')
      if queue == name or state == 'dead' then
        show(seq or ref, math.floor(math.abs(tonumber(at))), tonumber(at))
      end
    end
  end
end
if more then
  if state == 'ready' then
    at = int(gone + index)
  end
  result[2], result[3] = at, last
end
return result
