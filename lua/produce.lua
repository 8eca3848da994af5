-- produce: append entries to several partitions of one shard and keep the newest of each.
--
-- For each partition: LLEN, RPUSH, and LPOP of the oldest entries beyond the
-- capacity. A new partition becomes active and is due after the linger. A full batch
-- is due now, unless a range of the partition is leased or waits for a retry. Every
-- partition has its own answer, in the order of the call; a rejection affects that
-- partition only. A partition that appears twice is served twice.
--
-- KEYS[1] zset      active partitions of the shard by due time, ms
-- KEYS[2] hash      the shard's ledger
-- KEYS[3..] list,hash  of each partition: its entries, oldest first; its sequences and range; and, as a third key,
--                   the result of an idempotent call, a string, where ARGV says so
-- ARGV[1] int       capacity of a partition, in entries
-- ARGV[2] int       entries that make a full batch, at most the capacity
-- ARGV[3] ms        linger
-- ARGV[4] int       active partitions the shard may have
-- ARGV[5] ms        how long the result of an idempotent call is kept
-- ARGV[6] int       results of idempotent calls that the shard may keep
-- ARGV[7] bytes     the largest entry of the call
-- ARGV[8] int       position in a list's key where the partition's name begins, the member of KEYS[1]
-- ARGV[9..] bytes    of each partition: how many entries, 1 or more, negative where it has a third key for the
--                   result of an idempotent call; then that many encoded entries, oldest first
-- RETURNS {now, answer...}  an answer for each partition, the values of one of these:
-- RETURNS 0                            rejected: one new partition too many; nothing was written
-- RETURNS 1, accepted, evicted, depth  appended
-- RETURNS 2, accepted, evicted, depth  the result of the first call under the key
-- RETURNS 3, accepted, evicted, depth, sample  appended, and the newest evicted entry: its first 79 bytes, which hold time
--                                      and id. Only in one ms of 64, and only of an entry that no claim gave out
-- RETURNS 4                            rejected: one result too many; nothing was written
-- RETURNS text                         rejected, with the error of Redis; nothing was written
--
-- USES whole, int, time, read_keys, count_key, keys_text, end_range, open_shard, close_shard, plausible, read_meta, count_done, keep_done, write_done, reconcile, create_meta, adopt
local ready, ledger = KEYS[1], KEYS[2]
local capacity, full, linger = whole(ARGV[1], 1), whole(ARGV[2], 1), whole(ARGV[3], 0)
local max_active, keep, max_keys = whole(ARGV[4], 0), whole(ARGV[5], 1), whole(ARGV[6], 0)
local largest, name_at = whole(ARGV[7], 0), whole(ARGV[8], 1)
local bad = not (capacity and full and linger and max_active and keep and max_keys and largest and name_at)
  or full > capacity
local key, at = 3, 9
while not bad and at <= #ARGV do
  local k = tonumber(ARGV[at])
  bad = not k or k == 0 or k ~= math.floor(k) or k * k > 1e12
  if not bad then
    key = key + (k < 0 and 3 or 2)
    at = at + 1 + math.abs(k)
  end
end
if bad or key == 3 or at ~= #ARGV + 1 or key ~= #KEYS + 1 then
  return redis.error_reply('ERR produce: bad arguments')
end

local shard, rejected = open_shard(ledger)
if rejected then
  return rejected
end
local active = redis.call('ZCARD', ready)
local now, add, due = shard.now, shard.add, shard.due
local result = { now }
local key_ends, kept_keys -- what read_keys returns; nil: no call has needed it yet

-- Numbers of 13 and 16 digits that many partitions get are formatted once.
local birth = math.max(shard.now_us, shard.high_water)
local birth_text, due_text, tail_texts = int(birth), int(now + linger), {}

-- In one ms of 64 the answers name an evicted entry. In all others that costs nothing.
local sampling = now % 64 == 0

local function answer(code, accepted, evicted, depth)
  local n = #result
  result[n + 1], result[n + 2], result[n + 3], result[n + 4] = code, accepted, evicted, depth
end

-- keep_largest stores the size of a partition's largest entry where it is beyond 4 KiB.
-- A claim needs it before it reads.
local function keep_largest(m, first, k)
  local big = whole(redis.call('HGET', m, 'big'), 4096) or 4096
  local old = big
  for i = first, first + k - 1 do
    big = math.max(big, #ARGV[i])
  end
  if big > old then
    redis.call('HSET', m, 'big', big)
  end
end

-- reject takes the error of a partition's first write. An error of the server (it is
-- full, a replica, its disk fails) rejects the whole call: the client must see it as
-- the reply, because it drops its connection to a replica then.
local server_rejects
local function reject(words)
  if not shard.wrote and not string.find(words, '^WRONGTYPE') and not string.find(words, '^ERR ') then
    server_rejects = words
  end
  return words
end

-- append serves one partition: k entries from ARGV[first] on. It returns the error of
-- Redis where it is rejected.
local function append(q, m, seen, first, k)
  if seen then
    local stored = redis.pcall('GET', seen)
    if type(stored) == 'table' then
      return stored.err
    elseif stored then
      local accepted, evicted, depth = string.match(stored, '^(%d+) (%d+) (%d+)$')
      if not accepted then
        return 'ERR produce: the idempotency key holds a foreign value'
      end
      return answer(2, tonumber(accepted), tonumber(evicted), tonumber(depth))
    end
    if not key_ends then
      key_ends, kept_keys = read_keys(redis.call('HGET', ledger, 'keys'), now)
    end
    if kept_keys >= max_keys then
      return answer(4)
    end
  end

  -- All that can be rejected comes first, also the write that a full store rejects.
  local before = redis.pcall('LLEN', q)
  if type(before) == 'table' then
    return before.err
  end
  local last -- the new tail
  local complete, headless = false, false
  local born = before == 0
  if born then
    local old = redis.pcall('HGET', m, 'tail')
    if type(old) == 'table' then
      return old.err
    end
    local v, head, tail, known
    if old then
      v = redis.call('HMGET', m, 'head', 'tail', 'to', 'done')
      head, tail = whole(v[1], 0), whole(v[2], 0)
      if not plausible(head, tail, 0) then
        head, tail = nil, nil
      end
      known = redis.call('ZSCORE', ready, string.sub(q, name_at))
    end
    local vanished = head and tail
    if active >= max_active and not known then
      return answer(0)
    elseif not known then
      active = active + 1
    end
    local head_text, tail_text = birth_text, tail_texts[k]
    last = birth + k
    if tail and tail > birth then
      last = tail + k
      head_text, tail_text = int(tail), int(last)
    elseif not tail_text then
      tail_text = int(last)
      tail_texts[k] = tail_text
    end
    local written = create_meta(redis.pcall, m, head_text, tail_text)
    if type(written) == 'table' then
      return reject(written.err)
    end
    if written < 3 then
      -- Something other than Spillway removed the list. Its entries are lost, and the
      -- partition begins anew.
      end_range(m, 'settled', 'expired', 'big')
      if vanished then
        reconcile(shard, { head = head, tail = tail, settled = 0, to = whole(v[3], 0), done = v[4] or nil }, 0, false)
      end
    end
  else
    if before < full and before + k >= full then
      local held = redis.pcall('HEXISTS', m, 'to')
      if type(held) == 'table' then
        return held.err
      end
      complete = held == 0
    end
    last = redis.pcall('HINCRBY', m, 'tail', seen and k or ARGV[first - 1])
    if type(last) == 'table' then
      return reject(last.err)
    end
    headless = last == k -- the list is there, but not the hash, or not its tail
  end

  shard.wrote = true
  if k == 1 then
    redis.call('RPUSH', q, ARGV[first])
  else
    for i = first, first + k - 1, 1000 do
      redis.call('RPUSH', q, unpack(ARGV, i, math.min(i + 999, first + k - 1)))
    end
  end
  add.accepted = add.accepted + k

  local depth, evicted = before + k, 0
  local sample
  if depth > capacity then
    evicted = depth - capacity
    depth = capacity
    local newest = sampling and redis.call('LRANGE', q, evicted - 1, evicted - 1)[1]
    -- LPOP copies what it removes into Lua, so beyond four entries, or for large ones, LTRIM is cheaper.
    if evicted > 4 or largest > 4096 then
      redis.call('LTRIM', q, evicted, -1)
    elseif evicted == 1 then
      redis.call('LPOP', q)
    else
      redis.call('LPOP', q, evicted)
    end
    add.evicted = add.evicted + evicted
    if not headless then
      local head = redis.pcall('HINCRBY', m, 'head', evicted)
      if type(head) == 'table' or head == evicted then
        headless = true -- a hash that lacks its head is a lost hash
      elseif last - head ~= depth then
        -- Checking I1 costs nothing here: head and tail are known.
        local p = read_meta(m, evicted)
        if p.head then
          reconcile(shard, p, depth, p.from)
          redis.call('HSET', m, 'head', p.head, 'tail', p.tail, 'settled', p.settled)
          if p.from then
            redis.call('HSET', m, 'from', p.from)
          end
          write_done(m, p.done)
        else
          headless = true
        end
      elseif newest then
        -- A sink may have the entries of the range, or get them yet, so they are not named.
        local to = redis.call('HGET', m, 'to')
        if not to or (whole(to, 0) or head) < head then
          sample = string.sub(newest, 1, 79)
        end
      end
    end
  end
  if headless then
    local name = string.sub(q, name_at)
    local known = redis.call('ZSCORE', ready, name)
    adopt(shard, m, {}, depth, true)
    if not known then
      -- Something other than Spillway made the list: the entries from before are accepted now.
      add.accepted = add.accepted + before
      due[#due + 1] = now
      due[#due + 1] = name
      active = active + 1
    end
  end
  if largest > 4096 then
    keep_largest(m, first, k)
  end

  if born then
    due[#due + 1] = depth >= full and now or due_text
    due[#due + 1] = string.sub(q, name_at)
  elseif complete then
    due[#due + 1] = now
    due[#due + 1] = string.sub(q, name_at)
  end
  if seen then
    redis.call('SET', seen, int(k) .. ' ' .. int(evicted) .. ' ' .. int(depth), 'PX', keep)
    count_key(key_ends, now, keep)
    kept_keys, shard.keys = kept_keys + 1, key_ends
  end
  if sample then
    answer(3, k, evicted, depth)
    result[#result + 1] = sample
  else
    answer(1, k, evicted, depth)
  end
end

key, at = 3, 9
local last_arg = #ARGV
while at <= last_arg do
  local k, seen = tonumber(ARGV[at]), false
  if k < 0 then
    k, seen = -k, KEYS[key + 2]
  end
  local foreign = append(KEYS[key], KEYS[key + 1], seen, at + 1, k)
  if server_rejects then
    return redis.error_reply(server_rejects)
  elseif foreign then
    result[#result + 1] = foreign
  end
  key = key + (seen and 3 or 2)
  at = at + 1 + k
end
if shard.keys then
  shard.keys = keys_text(shard.keys)
end
close_shard(ready, ledger, shard)
return result
