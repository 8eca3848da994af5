-- settle: end or change leases. Only the holder may: a sequence names one delivery, and the
-- score of the reservation is the deadline of that lease. Where PHP has moved the payload
-- since, or reserved it itself, the lease is gone.
--
-- ack removes the payload. nack and release give it back for later; exhaust is a nack after its
-- last try: it dies. bury and unfit give it up. requeue gives it back at the head as it was.
-- touch makes the lease longer. Jobs that go back keep their order.
--
-- digits and append count the attempts of a claim that did not find them: digits where they are,
-- append where the payload has none, one field more at its end, which counts because it is the
-- last of its name. Once is enough: repeated they change nothing. unreadable gives up what is no
-- JSON.
--
-- KEYS[1] list      ready payloads, PHP's
-- KEYS[2] zset      delayed payloads by due time, s, PHP's
-- KEYS[3] zset      reserved payloads by deadline, s, PHP's; ours have a fraction
-- KEYS[4] list      notifications, Laravel's
-- KEYS[5] hash      the queue's account
-- KEYS[6] zset      our leases: sequence by deadline, ms
-- KEYS[7] hash      our leases: sequence -> record
-- KEYS[8] zset      our dead letters: sequence by time of death, ms
-- KEYS[9] hash      our dead letters: sequence -> "<reason> <place of attempts> <payload>", see read_letter
-- ARGV[1] 0|1       1: attempts are counted when a payload goes back, 0: when it is handed out
-- ARGV[2] 0|1       1: one notification a payload, Laravel
-- ARGV[3..] mixed   for each job: sequence, verb (exhaust, bury: the error may stand behind a space), number (nack, release: delay, ms; touch: lease, ms; digits: where they begin;
--                   append: attempts so far)
-- RETURNS {now, done...}  for each job: 0 gone, 1 ready, 2 delayed, 3 dead, 4 acked, 5 not looked at, because the call has read
--                   64 KiB: ask again; 6 still leased
--
-- USES whole, int, time, foreign, in_pieces, closing, write_digits, append, place, seconds, deadline_at, record, read_lease, original, end_lease, returned, open_account, close_account, push, are_flags
local keys = { ready = KEYS[1], delayed = KEYS[2], reserved = KEYS[3], notify = ARGV[2] == '1' and KEYS[4] or nil, account = KEYS[5],
  leases = KEYS[6], held = KEYS[7], dead = KEYS[8], letters = KEYS[9] }
local on_release = ARGV[1] == '1'
local counts = { ack = 'acked', nack = 'nacked', release = 'nacked', exhaust = 'buried', bury = 'buried', unfit = 'unfit',
  unreadable = 'unfit', requeue = 'requeued', touch = '', digits = '', append = '' }
local reasons = { exhaust = 'nacked', bury = 'buried', unfit = 'unfit', unreadable = 'unreadable' }
if #KEYS ~= 9 or #ARGV < 2 or (#ARGV - 2) % 3 ~= 0 or not are_flags(ARGV[1], ARGV[2]) then
  return redis.error_reply('ERR settle: bad arguments')
end
for at = 3, #ARGV, 3 do
  local ms = whole(ARGV[at + 2], 0)
  if not counts[string.match(ARGV[at + 1], '^%a*')] or not ms or ms > 1e12 then
    return redis.error_reply('ERR settle: bad arguments')
  end
end
local now = time()
local account, wrong = open_account(keys)
if not account then
  return wrong
end
local front, back, read = {}, {}, 0

local function die(seq, lease, reason, why)
  account.died = account.died + 1
  redis.call('ZADD', keys.dead, int(now), seq)
  local payload = lease.digits > 0 and lease.member or original(lease)
  if why ~= '' then
    reason = reason .. '+' .. int(#why)
  end
  redis.call('HSET', keys.letters, seq, reason .. ' ' .. int(lease.digits) .. ' ' .. why .. payload)
  return 3
end

-- count writes the attempts of a lease whose claim did not find them.
local function count(seq, lease, verb, n)
  local p, text, at, from, tail = original(lease), nil, n, n, 0
  if verb == 'digits' then
    local number = string.match(p, '^%d+', n)
    if not number then
      return 0
    end
    text, tail = on_release and p or write_digits(p, n, n + #number - 1, tonumber(number) + 1), #p - n - #number + 1
  else
    local field = '"attempts":'
    text, at = append(p, field .. int(on_release and n or n + 1))
    from = select(2, string.find(text, field, at, true)) + 1
  end
  redis.call('ZREM', keys.reserved, lease.member) -- a first write that needs no memory
  local member, twin = place(keys.reserved, seconds(lease.deadline), text, seq)
  account.twins = account.twins + twin
  redis.call('HSET', keys.held, seq, record(p, member, at, from, twin == 0 and tail or 0))
  return 6
end

local function settle(seq, verb, ms)
  local why
  verb, why = string.match(verb, '^(%a+) ?(.*)$')
  if read >= 65536 then
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
  if verb == 'digits' or verb == 'append' then
    return lease.digits > 0 and 6 or count(seq, lease, verb, ms)
  end
  local name = counts[verb]
  end_lease(keys, seq, lease)
  account[name] = account[name] + 1
  if verb == 'ack' then
    return 4
  elseif verb == 'requeue' then
    front[#front + 1] = original(lease)
    return 1
  elseif reasons[verb] then
    return die(seq, lease, reasons[verb], why)
  end
  local payload = returned(lease, on_release)
  if ms > 0 then
    local _, twin = place(keys.delayed, seconds(now + ms), payload, seq)
    account.twins = account.twins + twin
    return 2
  end
  back[#back + 1] = payload
  return 1
end

local result = { now }
for at = 3, #ARGV, 3 do
  result[#result + 1] = settle(ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]))
end
push(keys, front, true)
push(keys, back)
close_account(keys.account, account)
return result
