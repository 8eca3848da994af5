-- claim: lease the oldest entries of several partitions of one shard.
--
-- Only a partition that is due gets a lease. A partition that another drainer holds
-- is due when that lease lapses. Stale entries at the old end expire first. A range
-- that was presented before and not settled is presented again with the same batch
-- ends (cuts); otherwise the lease covers one batch, and further batches that are full.
-- The entries stay in the list until a commit settles them: a lease is only fields
-- in a hash. Every partition has its own answer, in the order of the call. A foreign
-- value under the keys of one partition affects that partition only.
-- A paused partition gets no lease. Its stale entries expire, and it is put off, so it
-- does not stand before others: until its oldest entry goes stale, or for a sixteenth
-- of the max age (500 ms at least), whatever is longer. A paused namespace is left alone.
--
-- KEYS[1] zset      active partitions of the shard by due time, ms
-- KEYS[2] hash      the shard's ledger
-- KEYS[3..] list,hash  of each partition: its entries, oldest first; its sequences and range
-- ARGV[1] string    token of the leases, never used before: their length in ms, a dot, a random text
-- ARGV[2] int       most entries of a batch
-- ARGV[3] int       most batches of a lease
-- ARGV[4] bytes     entries that the call reads at most, but never less than one entry; an entry counts
--                   as at least 512 bytes
-- ARGV[5] ms        max age of an entry
-- ARGV[6] int       entries that make a full batch, at most the capacity
-- ARGV[7..] string  of each partition: its name, the member of KEYS[1]; each name once
-- RETURNS {now, answer...}   an answer for each partition, the values of one of these:
-- RETURNS 0, due             not due before that time; due 0 = not active
-- RETURNS 1, expired         no lease: all entries were stale, or as many as one call may drop. What the sink has
--                            accepted counts as delivered, not as expired
-- RETURNS 2, expired, from, attempt, done, n, entry...  leased: sequence of the first entry, number of this
--                            presentation, what the sink has accepted (one 0 or 1 per entry; empty = nothing),
--                            and the n entries of the only batch
-- RETURNS 4, expired, from, attempt, done, n, batch...  leased: the same, and n batches, each an array of entries
-- RETURNS 3                  skipped: the call has read as much as it may
-- RETURNS 5, expired         no lease: the partition is paused
-- RETURNS 6                  no lease: the whole namespace is paused; nothing was written
-- RETURNS text               rejected, with the error of Redis; nothing was written
--
-- USES whole, int, time, lease_of, end_lease, open_shard, close_shard, read_pauses, trim_first, plausible, read_meta, count_done, keep_done, write_done, reconcile, create_meta, adopt, end_partition, is_stale, drop_stale
local min, max, floor = math.min, math.max, math.floor
local ready, ledger, token = KEYS[1], KEYS[2], ARGV[1]
local batch, batches, size = whole(ARGV[2], 1), whole(ARGV[3], 1), whole(ARGV[4], 1)
local max_age, full = whole(ARGV[5], 1), whole(ARGV[6], 1)
local lease = lease_of(token)
local partitions = #ARGV - 6
if not (batch and batches and size and max_age and full) or lease < 1 or partitions < 1
  or #KEYS ~= 2 + 2 * partitions then
  return redis.error_reply('ERR claim: bad arguments')
end

local shard, rejected = open_shard(ledger)
if rejected then
  return rejected
end
local all_paused, paused = read_pauses(shard, ledger, ARGV, 7)
local now = shard.now
if all_paused then
  local answers = { now }
  for i = 1, partitions do
    answers[1 + i] = 6
  end
  return answers
end
local scores = redis.call('ZMSCORE', ready, unpack(ARGV, 7))
local lapse = int(now + lease)
local result = { now }
local room = size -- bytes that the call may still read
local read = false

-- spend subtracts the size of entries that were read from the room.
local function spend(entries)
  read = true
  for i = 1, #entries do
    room = room - max(512, #entries[i])
  end
end

-- read_on appends entries from position base on to list until it holds count of them.
-- It stops at the end of the partition's list and, unless all is true, where the room
-- ends. Returns true at the end of the list.
local function read_on(q, list, base, count, bound, all)
  while #list < count and (all or room >= bound) do
    local want = count - #list
    if not all then
      want = min(want, floor(room / bound))
    end
    local some = redis.call('LRANGE', q, base + #list, base + #list + want - 1)
    spend(some)
    for i = 1, #some do
      list[#list + 1] = some[i]
    end
    if #some < want then
      return true
    end
  end
  return false
end

local function answer(code, value)
  local n = #result
  result[n + 1], result[n + 2] = code, value
end

-- leased answers with a lease. A batch of few entries is not an array but values of the
-- reply itself: Redis checks each array seven times when it converts a reply.
local function leased(expired, from, attempt, done, list)
  local n, code = #result, 4
  if #list == 1 and #list[1] <= 8 then
    code, list = 2, list[1]
  end
  result[n + 1], result[n + 2], result[n + 3], result[n + 4], result[n + 5] = code, expired, from, attempt, done
  result[n + 6] = #list
  for i = 1, #list do
    result[n + 6 + i] = list[i]
  end
end

-- lease_fresh leases the first batch of a partition without a range, whose list is as
-- long as its hash says. This is the path of nearly every claim.
local function lease_fresh(name, m, head, to, chunk)
  redis.call('HSET', m, 'token', token, 'from', head, 'to', to)
  shard.due[#shard.due + 1] = lapse
  shard.due[#shard.due + 1] = name
  leased(0, tonumber(head), 1, '', { chunk })
end

-- put_off is when a paused partition comes due again.
local function put_off(oldest)
  local stale = tonumber(string.sub(oldest, 1, 13)) + max_age + 1
  return min(now + max_age, max(now + max(500, floor(max_age / 16)), stale))
end

local function claim(name, q, m, due, is_paused)
  if not due or due > now then
    return answer(0, due or 0)
  elseif read and room < 512 * batch + 4096 then
    return answer(3) -- too little room even for a batch of small entries
  end
  local v = redis.pcall('HMGET', m, 'head', 'tail', 'to', 'big', 'done')
  if v.err then
    return v.err
  end
  local head, tail = whole(v[1], 0), whole(v[2], 0)
  -- The size of the entries of a list without its hash is unknown.
  local bound = max(512, whole(v[4] or head and tail and 4096 or 65536, 1) or 65536)
  if read and bound > room then
    return answer(3)
  end
  local first = not read
  local want = is_paused and 1 or batch
  local step = min(want, max(1, floor(room / bound)))
  local chunk = redis.pcall('LRANGE', q, 0, step - 1)
  if chunk.err then
    return chunk.err
  end
  spend(chunk)
  local length = (#chunk < step or read_on(q, chunk, 0, want, bound, false)) and #chunk or redis.call('LLEN', q)
  if #chunk < min(want, length) and not first then
    return answer(3) -- a batch must not be smaller because others came before it
  end
  if length > 0 then
    trim_first(shard, q)
    if not is_paused and not v[3] and not v[5] and head and tail and tail - head == length and (batches == 1 or length - #chunk < full)
      and not is_stale(chunk[1], now - max_age) then
      return lease_fresh(name, m, v[1], length == #chunk and v[2] or head + #chunk, chunk)
    end
  end

  local p = read_meta(m)
  local held = p.to and p.head and p.to > p.head
  local done_before = p.done
  local changed
  if p.head then
    changed = reconcile(shard, p, length, false)
  elseif length > 0 then
    adopt(shard, m, p, length, true)
  end
  if length == 0 then
    end_partition(shard, name, q, m, p.tail or 0)
    return answer(1, 0)
  end
  local dropped, expired, more
  local known = #chunk
  chunk, dropped, expired, more = drop_stale(shard, q, p, chunk, max(step, min(64, floor(size / bound))), now - max_age)
  if dropped >= known then
    spend(chunk) -- drop_stale has read further entries
  end
  if p.head == p.tail then
    end_partition(shard, name, q, m, p.tail)
    return answer(1, expired)
  end
  if p.done ~= done_before then
    write_done(m, p.done)
  end
  if changed or dropped > 0 then
    redis.call('HSET', m, 'head', p.head, 'tail', p.tail, 'settled', p.settled, 'expired', p.expired)
  end
  if more then
    end_lease(m)
    shard.due[#shard.due + 1] = now
    shard.due[#shard.due + 1] = name
    return answer(1, expired)
  end
  if is_paused then
    if p.token then
      end_lease(m) -- it lapsed
    end
    shard.due[#shard.due + 1] = put_off(chunk[1])
    shard.due[#shard.due + 1] = name
    return answer(5, expired)
  end

  head = p.head
  local set = { 'token', token }
  local function put(field, value)
    set[#set + 1] = field
    set[#set + 1] = value
  end
  local list, attempt, done = {}, 1, ''
  local to = head
  if held and p.to <= head then
    held = false
  end
  -- add_batch adds a batch of count entries; chunk holds the first entries of the first
  -- batch. The batch is smaller where the room ends, but a range that was presented
  -- before is read whole: it fitted into a call then.
  local function add_batch(count)
    local entries = {}
    if to == head then
      for i = 1, min(count, #chunk) do
        entries[i] = chunk[i]
      end
    end
    read_on(q, entries, to - head, count, bound, held)
    if #entries > 0 then
      to = to + #entries
      list[#list + 1] = entries
    end
    return #entries == count
  end

  local cuts = {}
  if held then
    attempt = p.attempt + 1
    put('attempt', attempt)
    done = p.done or ''
    for cut in string.gmatch(p.cuts or '', '%d+') do
      cut = tonumber(cut)
      if cut > to and cut <= p.to then
        add_batch(cut - to)
        cuts[#cuts + 1] = int(to)
      end
    end
    -- Without cuts the range was one batch, of 128 entries at most, whatever a batch is now.
    local going = true
    while going and to < p.to do
      going = add_batch(min(max(batch, 128), p.to - to))
      cuts[#cuts + 1] = int(to)
    end
  else
    if p.to or p.leftover then
      redis.call('HDEL', m, 'cuts', 'attempt', 'done')
    end
    local whole_batch = true
    while whole_batch and #cuts < batches and to < p.tail
      and (to == head or p.tail - to >= full and room >= 512 * batch + bound) do
      whole_batch = add_batch(min(batch, p.tail - to))
      cuts[#cuts + 1] = int(to)
    end
  end
  put('from', head)
  put('to', to)
  if #cuts > 1 and not (held and p.cuts) then -- a claim ignores cuts before from
    put('cuts', table.concat(cuts, ' '))
  end
  redis.call('HSET', m, unpack(set))
  shard.due[#shard.due + 1] = lapse
  shard.due[#shard.due + 1] = name
  leased(expired, head, attempt, done, list)
end

for i = 1, partitions do
  local foreign = claim(ARGV[6 + i], KEYS[1 + 2 * i], KEYS[2 + 2 * i], tonumber(scores[i] or nil), paused[i])
  if foreign then
    result[#result + 1] = foreign
  end
end
close_shard(ready, ledger, shard)
return result
