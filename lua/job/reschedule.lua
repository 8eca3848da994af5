-- reschedule: give a delayed job another due time or another payload. One that was ever claimed keeps both, since its
-- worker knows them; but it may be due now.
--
-- The record keeps its expiry, tries, caller's id and attributes. A ttl counts from the publish, so it bounds the new time.
--
-- KEYS[1] zset      delayed jobs by due time, ms
-- KEYS[2] hash      attempts of jobs that were claimed before
-- KEYS[3] hash      jobs of the queue
-- KEYS[4] zset      leases by deadline, ms
-- KEYS[5] zset      its dead jobs
-- KEYS[6] hash      where the job is unique for a while: the shard's ledger
-- KEYS[7] string    and its unique key
-- ARGV[1] string    name of the queue
-- ARGV[2] string    sequence, and behind a colon the caller's id
-- ARGV[3] ms        delay from now on; -1 = due as before; -2 = due now, also where it was claimed before
-- ARGV[4] ms        how long the unique key is kept from now on, at least, where it is kept for the job; 0 = as before
-- ARGV[5] bytes     payload; left out = as before
-- RETURNS {now, status, ms}  1 done, with when it is due. Rejected, with 0: 0 there is no such job, 2 it is in another state or was
--                   claimed before, 3 its ttl ends before that time
--
-- USES whole, int, time, caller_id, ends_of, is_over
local delay, j, wait, window = KEYS[1], KEYS[3], whole(ARGV[3], -2), whole(ARGV[4], 0)
local seq, id = string.match(ARGV[2] or '', '^(%d+):?(.*)$')
if #KEYS ~= (window == 0 and 5 or 7) or #ARGV < 4 or #ARGV > 5 or not (wait and seq and window) then
  return redis.error_reply('ERR reschedule: bad arguments')
end
local now = time()
local member = seq .. ' ' .. ARGV[1]
local record = redis.call('HGET', j, seq)
local head = record and string.match(record, '^%d+ %d+@?[%w_-]*')
if not head or (caller_id(record) or '') ~= id then
  return { now, 0, 0 }
end
local leased, dead = redis.call('ZSCORE', KEYS[4], member), redis.call('ZSCORE', KEYS[5], seq)
if is_over(record, now) and not dead and tonumber(leased or 0) <= now then
  return { now, 0, 0 }
end
local due = redis.call('ZSCORE', delay, member)
if not due or tonumber(due) < 0 or wait > -2 and redis.call('HEXISTS', KEYS[2], member) == 1 then
  return { now, 2, 0 }
end
due = tonumber(due)
wait = wait < -1 and 0 or wait
if wait >= 0 then
  due = now + wait
  local ends = ends_of(record)
  if ends > 0 and due >= ends then
    return { now, 3, 0 }
  end
end
local left = window > 0 and redis.pcall('GET', KEYS[7]) == seq .. ' 1' and redis.call('PTTL', KEYS[7]) or window
local keys = left < window and redis.call('HGET', KEYS[6], 'keys')
if ARGV[5] then
  local length, from = string.match(record, '^#(%d+),()', #head + 1)
  local kept = #head + 1
  if length then
    kept = from - 1 + tonumber(length)
  end
  redis.call('HSET', j, seq, string.sub(record, 1, kept) .. ARGV[5]) -- a full store rejects it whole
else
  redis.call('ZREM', delay, '') -- of nothing: a full store lets the call pass, which takes no memory
end
if wait >= 0 then
  redis.call('ZADD', delay, int(due), member)
end
if left < window then
  -- WITH read_keys, count_key, key_end, keys_text
  local counted = read_keys(keys, now)
  local before = key_end(now + left, window)
  if (counted[before] or 0) > 0 then -- no other window was asked for
    counted[before] = counted[before] - 1
  end
  count_key(counted, now, window)
  redis.call('PEXPIRE', KEYS[7], int(window))
  redis.call('HSET', KEYS[6], 'keys', keys_text(counted))
end
return { now, 1, due }
