-- get: one delivery of ours, and where it is; writes nothing.
--
-- KEYS[1] zset      reserved payloads by deadline, s, PHP's; ours have a fraction
-- KEYS[2] zset      our leases: sequence by deadline, ms
-- KEYS[3] hash      our leases: sequence -> record
-- KEYS[4] zset      our dead letters: sequence by time of death, ms
-- KEYS[5] hash      our dead letters: sequence -> "<reason> <place of attempts> <payload>", see read_letter
-- ARGV[1] int       sequence
-- RETURNS {now, 0}  none: it ended, or PHP has the payload
-- RETURNS {now, 1, state, ms, reason, payload}  leased: until when, '', as it was handed out; dead: when it died and why, the error behind a space
--
-- USES time, read_lease, original, read_letter
local keys = { reserved = KEYS[1], leases = KEYS[2], held = KEYS[3] }
local seq = ARGV[1]
if #KEYS ~= 5 or #ARGV ~= 1 then
  return redis.error_reply('ERR get: bad arguments')
end
local now = time()
local lease = read_lease(keys, seq)
if lease and lease.member then
  return { now, 1, 'leased', lease.deadline, '', original(lease) }
end
local died = redis.call('ZSCORE', KEYS[4], seq)
local reason, payload, _, told = read_letter(died and redis.call('HGET', KEYS[5], seq) or nil)
if reason then
  return { now, 1, 'dead', tonumber(died), told, payload }
end
return { now, 0 }
