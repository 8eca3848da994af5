-- claim: hand payloads of one queue of PHP's out, each under a lease that PHP's workers heed.
--
-- As a PHP worker does: what is due becomes ready, first delayed payloads, then what lapsed;
-- then the head of the list is reserved. In one step, so no crash loses it. A payload that
-- does not look like an object becomes a dead letter: a PHP worker would lose it. A call gives
-- fewer than asked where the list is empty or it met its bounds: the answer is full, or 256 were
-- no JSON. KEYS[10] keeps what it handed out until the lane's next call, for revert.
--
-- Where the attempts of a payload are not at its end, the answer says -1 for them: the caller
-- finds them and has them counted, see settle, before it starts the job. -2 says so of one that
-- PHP let lapse, which is counted on release: it comes beside those that were asked for, and
-- the caller releases it.
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
-- KEYS[10] string   what the lane's last call handed out
-- ARGV[1] string    token of this call
-- ARGV[2] ms        how long KEYS[10] is kept
-- ARGV[3] ms        lease
-- ARGV[4] int       payloads, 1 to 1,000
-- ARGV[5] bytes     size of the answer, about, at most; but never less than a payload
-- ARGV[6] 0|1       1: attempts are counted when a payload goes back, think-queue 1 and 2; 0: when it is handed out
-- ARGV[7] 0|1       1: one notification a payload, Laravel
-- ARGV[8] 0|1       1: PHP's lapsed reservations become ready; 0: its retry_after is null
-- RETURNS {now, moved, lapsed, unreadable, left, sequence, attempts before, deadline ms, payload, ...}  the payload as it was
--
-- USES whole, int, time, foreign, in_pieces, closing, digits, is_object, write_digits, append, place, seconds, deadline_at, record, read_lease, original, end_lease, open_account, close_account, push, move_due, returned, lapse, are_flags
local keys = { ready = KEYS[1], delayed = KEYS[2], reserved = KEYS[3], notify = ARGV[7] == '1' and KEYS[4] or nil, account = KEYS[5],
  leases = KEYS[6], held = KEYS[7], dead = KEYS[8], letters = KEYS[9] }
local out, keep, ttr, count, size = KEYS[10], whole(ARGV[2], 1), whole(ARGV[3], 1), whole(ARGV[4], 1), whole(ARGV[5], 1)
local on_release, steal = ARGV[6] == '1', ARGV[8] == '1'
if #KEYS ~= 10 or #ARGV ~= 8 or not (keep and ttr and count and size) or keep > 1e12 or ttr > 1e12 or count > 1000
  or not are_flags(ARGV[6], ARGV[7], ARGV[8]) then
  return redis.error_reply('ERR claim: bad arguments')
end
local now, now_us = time()
local account, wrong = open_account(keys)
if not account then
  return wrong
end
local hard = {}
account.moved = move_due(keys, keys.delayed, now)
local lapsed, more = lapse(keys, now, on_release)
account.lapsed = lapsed
if steal and not more then
  -- What is due now is none of ours: lapse took those.
  account.moved = account.moved + move_due(keys, keys.reserved, now, on_release and hard)
end

local seq = math.max(now_us, account.seq + 1)
local last = seq - 1
local deadline = deadline_at(now + ttr)
local answer, handed, held, leases, letters, bytes = {}, { ARGV[1] }, {}, {}, {}, 0

-- hand_out leases a payload, or buries it where it is no object. unknown: what the answer says of attempts that are not found.
local function hand_out(p, unknown)
  local ref = int(seq)
  last, seq, bytes = seq, seq + 1, bytes + #p
  local value, from, to = digits(p)
  if not value and not is_object(p) then
    redis.call('ZADD', keys.dead, int(now), ref)
    letters[#letters + 1], letters[#letters + 2] = ref, 'unreadable 0 ' .. p
    account.unreadable, account.died = account.unreadable + 1, account.died + 1
    return
  end
  local text = value and not on_release and write_digits(p, from, to, value + 1) or p
  local member, twin = place(keys.reserved, seconds(deadline), text, ref)
  held[#held + 1], held[#held + 2] = ref, record(p, member, from or member == p and #p + 1 or closing(p), from or 0, 0)
  leases[#leases + 1], leases[#leases + 2] = int(deadline), ref
  handed[#handed + 1] = ref
  local m = #answer
  answer[m + 1], answer[m + 2], answer[m + 3], answer[m + 4] = ref, int(value or unknown), int(deadline), p
  account.claimed, account.twins = account.claimed + 1, account.twins + twin
end

for _, p in ipairs(hard) do
  hand_out(p, -2)
end
count, bytes = count + #hard, 0
while account.claimed < count and account.unreadable < 256 and (bytes < size or bytes == 0) do
  local p = redis.call('LPOP', keys.ready)
  if not p then
    break
  end
  hand_out(p, -1)
end
local popped = account.claimed + account.unreadable
if keys.notify and popped > 0 then
  redis.call('LTRIM', keys.notify, popped, -1)
end
in_pieces(redis.call, 'HSET', keys.held, held)
in_pieces(redis.call, 'ZADD', keys.leases, leases)
in_pieces(redis.call, 'HSET', keys.letters, letters)
if account.claimed > 0 then
  redis.call('SET', out, table.concat(handed, ' '), 'PX', int(keep))
end
if popped > 0 then
  close_account(keys.account, account, 'seq', int(last))
else
  close_account(keys.account, account)
end
local result = { now, account.moved, lapsed, account.unreadable, redis.call('LLEN', keys.ready) }
for i = 1, #answer do
  result[5 + i] = answer[i]
end
return result
