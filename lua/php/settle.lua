-- settle: end or change leases. Only the holder may: a sequence names one delivery, and the
-- score of the reservation is the deadline of that lease. Where PHP has moved the payload
-- since, or reserved it itself, the lease is gone.
--
-- ack removes the payload. nack gives it back for later; after its last try it dies. release
-- gives it back whatever the try. bury and unfit give it up. requeue gives it back at the
-- head as it was. touch makes the lease longer. Jobs that go back keep their order.
--
-- KEYS[1] list      ready payloads, PHP's
-- KEYS[2] zset      delayed payloads by due time, s, PHP's
-- KEYS[3] zset      reserved payloads by deadline, s, PHP's; ours have a fraction
-- KEYS[4] list      notifications, Laravel's
-- KEYS[5] hash      the queue's account
-- KEYS[6] zset      our leases: sequence by deadline, ms
-- KEYS[7] hash      our leases: sequence -> record
-- KEYS[8] zset      our dead letters: sequence by time of death, ms
-- KEYS[9] hash      our dead letters: sequence -> "<reason> <payload>"
-- ARGV[1] 0|1       attempts of a payload that was never delivered
-- ARGV[2] 0|1       1: attempts are counted when a payload goes back, 0: when it is handed out
-- ARGV[3] 0|1       1: one notification a payload, Laravel
-- ARGV[4] int       tries of a payload that names none; 0: endless
-- ARGV[5..] mixed   for each job: sequence, verb, ms (nack, release: delay; touch: lease)
-- RETURNS {now, done...}  for each job: 0 gone, 1 ready, 2 delayed, 3 dead, 4 acked, 5 not looked at, because the call has read
--                   4 MiB: ask again; 6 still leased
--
-- USES whole, int, time, foreign, in_pieces, closing, attempts, append, write_attempts, counted, place, seconds, deadline_at, read_lease, end_lease, open_account, close_account, push, are_flags
local keys = { ready = KEYS[1], delayed = KEYS[2], reserved = KEYS[3], notify = ARGV[3] == '1' and KEYS[4] or nil, account = KEYS[5],
  leases = KEYS[6], held = KEYS[7], dead = KEYS[8], letters = KEYS[9] }
local first, on_release, tries = whole(ARGV[1], 0), ARGV[2] == '1', whole(ARGV[4], 0)
local counts = { ack = 'acked', nack = 'nacked', release = 'nacked', bury = 'buried', unfit = 'unfit', requeue = 'requeued', touch = '' }
if #KEYS ~= 9 or not (first and tries) or (#ARGV - 4) % 3 ~= 0 or not are_flags(ARGV[1], ARGV[2], ARGV[3]) then
  return redis.error_reply('ERR settle: bad arguments')
end
for at = 5, #ARGV, 3 do
  local ms = whole(ARGV[at + 2], 0)
  if not counts[ARGV[at + 1]] or not ms or ms > 1e12 then
    return redis.error_reply('ERR settle: bad arguments')
  end
end
local now = time()
local account, wrong = open_account(keys)
if not account then
  return wrong
end
local front, back, read = {}, {}, 0

-- is_last tells whether PHP's worker would let a payload fail whose delivery of this number failed now.
local function is_last(payload, delivery)
  local ok, v = pcall(cjson.decode, payload)
  if not ok or type(v) ~= 'table' then
    v = {}
  end
  local till, at = tonumber(v.retryUntil) or 0, tonumber(v.timeoutAt) or 0
  if till > 0 and till <= now / 1000 or at > 0 and at <= now / 1000 then
    return true
  end
  local most = tonumber(v.maxTries) or tries
  return till == 0 and most > 0 and delivery >= most
end

local function die(seq, payload, reason)
  account.died = account.died + 1
  redis.call('ZADD', keys.dead, int(now), seq)
  redis.call('HSET', keys.letters, seq, reason .. ' ' .. payload)
  return 3
end

local function settle(seq, verb, ms)
  if read >= 4194304 then
    return 5
  end
  local lease = read_lease(keys, seq)
  read = read + (lease and lease.size or 0)
  if not lease or not lease.member then
    return 0 -- lapse ends what is left of it
  end
  if verb == 'touch' then
    local till = deadline_at(now + ms)
    redis.call('ZREM', keys.leases, seq) -- a first write that needs no memory
    redis.call('ZADD', keys.reserved, seconds(till), lease.member)
    redis.call('ZADD', keys.leases, int(till), seq)
    return 6
  end
  local name = counts[verb]
  local a = verb == 'nack' and attempts(lease.payload, first)
  local dies = a and is_last(lease.payload, a.value + 1 - first)
  if dies then
    name = 'buried'
  end
  end_lease(keys, seq, lease)
  account[name] = account[name] + 1
  if verb == 'ack' then
    return 4
  elseif verb == 'requeue' then
    front[#front + 1] = lease.payload
    return 1
  elseif dies then
    return die(seq, lease.member, 'nacked')
  elseif verb == 'bury' or verb == 'unfit' then
    return die(seq, lease.member, name)
  end
  local payload = on_release and counted(lease.payload, first) or lease.member
  if ms > 0 then
    local _, twin = place(keys.delayed, seconds(now + ms), payload, seq)
    account.twins = account.twins + twin
    return 2
  end
  back[#back + 1] = payload
  return 1
end

local result = { now }
for at = 5, #ARGV, 3 do
  result[#result + 1] = settle(ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]))
end
push(keys, front, true)
push(keys, back)
close_account(keys.account, account)
return result
