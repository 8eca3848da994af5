-- respawn: make the oldest dead letters ready again, as if they had never been delivered, or delete them.
--
-- What is no JSON cannot be ready again, and stays: skip those that earlier calls kept. A call
-- reads about 64 KiB, so large ones take several calls.
--
-- KEYS[1] list      ready payloads, PHP's
-- KEYS[2] list      notifications, Laravel's
-- KEYS[3] hash      the queue's account
-- KEYS[4] zset      our dead letters: sequence by time of death, ms
-- KEYS[5] hash      our dead letters: sequence -> "<reason> <place of attempts> <payload>", see read_letter
-- ARGV[1] string    respawn or delete
-- ARGV[2] int       how many to skip
-- ARGV[3] int       how many, 1 to 100
-- ARGV[4] 0|1       attempts of a payload that was never delivered
-- ARGV[5] 0|1       1: one notification a payload, Laravel
-- RETURNS {now, count, kept, left}  respawned or deleted; looked at and kept; dead letters that are left, those included
--
-- USES whole, int, time, foreign, in_pieces, write_digits, read_letter, open_account, close_account, push, are_flags
local keys = { ready = KEYS[1], notify = ARGV[5] == '1' and KEYS[2] or nil, account = KEYS[3], dead = KEYS[4], letters = KEYS[5] }
local verb, skip, count, first = ARGV[1], whole(ARGV[2], 0), whole(ARGV[3], 1), whole(ARGV[4], 0)
if #KEYS ~= 5 or #ARGV ~= 5 or not (skip and count and first) or count > 100 or verb ~= 'respawn' and verb ~= 'delete'
  or not are_flags(ARGV[4], ARGV[5]) then
  return redis.error_reply('ERR respawn: bad arguments')
end
local now = time()
local account, wrong = open_account(keys)
if not account then
  return wrong
end
local gone, back, kept, bytes = {}, {}, 0, 0
for _, seq in ipairs(redis.call('ZRANGE', keys.dead, int(skip), int(skip + count - 1))) do
  if bytes >= 65536 then
    break
  end
  local text = verb == 'respawn' and redis.call('HGET', keys.letters, seq) or ''
  local reason, payload, from = read_letter(text)
  bytes = bytes + #text
  if reason == 'unreadable' then
    kept = kept + 1
  else
    gone[#gone + 1] = seq
    if reason then
      local number = from > 0 and string.match(payload, '^%d+', from)
      back[#back + 1] = number and write_digits(payload, from, from + #number - 1, first) or payload
    end
  end
end
account.respawned, account.deleted = #back, #gone - #back
in_pieces(redis.call, 'ZREM', keys.dead, gone)
in_pieces(redis.call, 'HDEL', keys.letters, gone)
push(keys, back)
close_account(keys.account, account)
return { now, #gone, kept, redis.call('ZCARD', keys.dead) }
