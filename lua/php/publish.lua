-- publish: payloads for one queue of PHP's, now or later, all or none.
--
-- KEYS[1] list      ready payloads, PHP's
-- KEYS[2] zset      delayed payloads by due time, s, PHP's
-- KEYS[3] list      notifications, Laravel's
-- KEYS[4] hash      the queue's account
-- KEYS[5] string    result of a keyed publish
-- ARGV[1] ms        delay; 0: now
-- ARGV[2] 0|1       1: one notification a payload, Laravel
-- ARGV[3] ms        how long KEYS[5] is kept; 0: the publish has no key
-- ARGV[4] int       results of keyed publishes that the queue may keep
-- ARGV[5..] json    payloads, 0 to 1,000, each an object; without any it only asks what is under the key
-- RETURNS {now, 1, count}  stored
-- RETURNS {now, 2, count}  stored before under this key
-- RETURNS {now, 6, 0}      too many keys
-- RETURNS {now, 9, 0}      there is nothing to store
--
-- USES whole, int, time, foreign, in_pieces, read_keys, count_key, keys_text, seconds, closing, append, place, open_account, close_account, push, are_flags
local keys = { ready = KEYS[1], delayed = KEYS[2], notify = ARGV[2] == '1' and KEYS[3] or nil, account = KEYS[4] }
local known, delay, keep, max_keys = KEYS[5], whole(ARGV[1], 0), whole(ARGV[3], 0), whole(ARGV[4], 0)
if #KEYS ~= 5 or not (delay and keep and max_keys) or delay > 1e12 or keep > 1e12 or #ARGV < (keep > 0 and 4 or 5) or #ARGV > 1004
  or not are_flags(ARGV[2]) then
  return redis.error_reply('ERR publish: bad arguments')
end
local payloads = {}
for i = 5, #ARGV do
  if not string.find(ARGV[i], '^%s*{') or not closing(ARGV[i]) then
    return redis.error_reply('ERR publish: bad arguments')
  end
  payloads[i - 4] = ARGV[i]
end
local now, now_us = time()
local account, wrong = open_account(keys)
if not account then
  return wrong
end
local ends
if keep > 0 then
  local stored = redis.call('GET', known)
  if stored then
    return { now, 2, tonumber(stored) or 0 }
  elseif #payloads == 0 then
    return { now, 9, 0 }
  end
  local kept
  ends, kept = read_keys(redis.call('HGET', keys.account, 'keys'), now)
  if kept >= max_keys then
    return { now, 6, 0 }
  end
  count_key(ends, now, keep)
end

-- The first write: a store that is full rejects it.
account.published = #payloads
close_account(keys.account, account, unpack(ends and { 'keys', keys_text(ends) } or {}))
if delay > 0 then
  local twins = 0
  for i, p in ipairs(payloads) do
    local _, twin = place(keys.delayed, seconds(now + delay), p, int(now_us + i))
    twins = twins + twin
  end
  if twins > 0 then
    redis.call('HINCRBY', keys.account, 'twins', int(twins))
  end
else
  push(keys, payloads)
end
if keep > 0 then
  redis.call('SET', known, int(#payloads), 'PX', int(keep))
end
return { now, 1, #payloads }
