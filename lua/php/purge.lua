-- purge: remove payloads of a queue, the ready ones oldest first, or all but what PHP has reserved.
--
-- A call looks at a bounded number, and reads about 64 KiB of what is leased. The caller
-- repeats it while there may be more. A payload counts as purged; its lease has lapsed. A
-- dead letter counts as deleted.
--
-- KEYS[1] list      ready payloads, PHP's
-- KEYS[2] zset      delayed payloads by due time, s, PHP's
-- KEYS[3] zset      reserved payloads by deadline, s, PHP's; ours have a fraction
-- KEYS[4] list      notifications, Laravel's
-- KEYS[5] hash      the queue's account
-- KEYS[6] zset      our leases: sequence by deadline, ms
-- KEYS[7] hash      our leases: sequence -> record
-- KEYS[8] zset      our dead letters: sequence by time of death, ms
-- KEYS[9] hash      our dead letters: sequence -> "<reason> <place of attempts> <payload>"
-- ARGV[1] string    ready, or all: then also the delayed, those that we lease, and the dead ones
-- ARGV[2] int       payloads to look at, 1 to 1,000
-- ARGV[3] 0|1       1: one notification a payload, Laravel
-- RETURNS {now, looked at, removed}  looked at: as many as ARGV[2] says while there may be more
--
-- USES whole, int, time, foreign, in_pieces, read_lease, end_lease, open_account, close_account, are_flags
local keys = { ready = KEYS[1], delayed = KEYS[2], reserved = KEYS[3], notify = ARGV[3] == '1' and KEYS[4] or nil, account = KEYS[5],
  leases = KEYS[6], held = KEYS[7], dead = KEYS[8], letters = KEYS[9] }
local state, count = ARGV[1], whole(ARGV[2], 1)
if #KEYS ~= 9 or #ARGV ~= 3 or not count or count > 1000 or state ~= 'ready' and state ~= 'all'
  or not are_flags(ARGV[3]) then
  return redis.error_reply('ERR purge: bad arguments')
end
local now = time()
local account, wrong = open_account(keys)
if not account then
  return wrong
end
local looked = math.min(count, redis.call('LLEN', keys.ready))
account.purged = looked
redis.call('LTRIM', keys.ready, looked, -1) -- removes without reading, and as a first write needs no memory
if keys.notify then
  redis.call('LTRIM', keys.notify, looked, -1)
end
if state == 'all' and looked < count then
  local delayed = redis.call('ZREMRANGEBYRANK', keys.delayed, 0, count - looked - 1)
  account.purged, looked = account.purged + delayed, looked + delayed
end
if state == 'all' and looked < count then
  local bytes = 0
  for _, seq in ipairs(redis.call('ZRANGE', keys.leases, 0, count - looked - 1)) do
    local lease = read_lease(keys, seq)
    end_lease(keys, seq, lease)
    account.lapsed, looked, bytes = account.lapsed + 1, looked + 1, bytes + lease.size
    if lease.member then
      account.purged = account.purged + 1
    end
    if bytes >= 65536 then
      looked = count
      break
    end
  end
end
if state == 'all' and looked < count then
  local seqs = redis.call('ZRANGE', keys.dead, 0, count - looked - 1)
  in_pieces(redis.call, 'ZREM', keys.dead, seqs)
  in_pieces(redis.call, 'HDEL', keys.letters, seqs)
  account.deleted, looked = #seqs, looked + #seqs
end
close_account(keys.account, account)
return { now, looked, account.purged + account.deleted }
