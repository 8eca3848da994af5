-- revert: take back a claim with an unknown outcome.
--
-- Does nothing where the claim did not run. What it handed out and still holds goes back to
-- the head, uncounted; payloads that moved on since are left alone.
--
-- KEYS[1] list      ready payloads, PHP's
-- KEYS[2] zset      reserved payloads by deadline, s, PHP's; ours have a fraction
-- KEYS[3] list      notifications, Laravel's
-- KEYS[4] hash      the queue's account
-- KEYS[5] zset      our leases: sequence by deadline, ms
-- KEYS[6] hash      our leases: sequence -> record
-- KEYS[7] string    what the lane's last claim handed out
-- ARGV[1] string    token of the claim
-- ARGV[2] 0|1       1: one notification a payload, Laravel
-- RETURNS {now, payloads}  given back
--
-- USES whole, int, time, foreign, in_pieces, read_lease, original, end_lease, open_account, close_account, push, are_flags
local keys = { ready = KEYS[1], reserved = KEYS[2], notify = ARGV[2] == '1' and KEYS[3] or nil, account = KEYS[4],
  leases = KEYS[5], held = KEYS[6] }
local out, prefix = KEYS[7], (ARGV[1] or '') .. ' '
if #KEYS ~= 7 or #ARGV ~= 2 or not are_flags(ARGV[2]) then
  return redis.error_reply('ERR revert: bad arguments')
end
local now = time()
local text = redis.pcall('GET', out)
if not text or foreign(text) or string.sub(text, 1, #prefix) ~= prefix then
  return { now, 0 }
end
local account, wrong = open_account(keys)
if not account then
  return wrong
end
redis.call('DEL', out) -- a first write that needs no memory
local back = {}
for seq in string.gmatch(string.sub(text, #prefix + 1), '%d+') do
  local lease = read_lease(keys, seq)
  if lease then
    end_lease(keys, seq, lease)
    back[#back + 1] = lease.member and original(lease)
    local name = lease.member and 'requeued' or 'lapsed'
    account[name] = account[name] + 1
  end
end
push(keys, back, true)
close_account(keys.account, account)
return { now, #back }
