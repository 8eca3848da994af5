-- revert: take back a claim with an unknown outcome.
--
-- Does nothing where the claim did not run. Jobs that moved on since are left alone.
--
-- KEYS[1] hash      attempts of jobs that were claimed before
-- KEYS[2] zset      leases by deadline, ms
-- KEYS[3] string    what the lane's last claim handed out
-- KEYS[4..] list    ready jobs of each queue that the claim asked for
-- ARGV[1] string    token of the claim
-- ARGV[2] string    beginning of the channels that wake who waits
-- ARGV[3] string    the command that wakes: publish, or spublish in a cluster
-- ARGV[4..] string  names of the queues
-- RETURNS {now, jobs}  given back at the head, uncounted
--
-- USES int, time, foreign, wake
local attempts, lease, out = KEYS[1], KEYS[2], KEYS[3]
if #KEYS ~= #ARGV then
  return redis.error_reply('ERR revert: bad arguments')
end
local now = time()
local text = redis.pcall('GET', out)
local prefix = ARGV[1] .. '\n'
if not text or foreign(text) or string.sub(text, 1, #prefix) ~= prefix then
  return { now, 0 }
end
redis.call('HLEN', attempts)
redis.call('ZCARD', lease)
local ready = {}
for i = 4, #ARGV do
  if not foreign(redis.pcall('LLEN', KEYS[i])) then
    ready[ARGV[i]] = KEYS[i]
  end
end
redis.call('DEL', out) -- a first write that needs no memory
local back, deadline = {}, 0
for line in string.gmatch(string.sub(text, #prefix + 1), '[^\n]+') do
  local seq, queue = string.match(line, '^(%d+) (.+)$')
  if not seq then
    deadline = tonumber(line) -- of the jobs that follow
  elseif ready[queue] then
    local score = redis.call('ZSCORE', lease, line)
    if score and math.floor(tonumber(score)) == deadline then
      back[#back + 1] = { seq, queue, line }
    end
  end
end
for x = #back, 1, -1 do
  local seq, queue, member = back[x][1], back[x][2], back[x][3]
  redis.call('ZREM', lease, member)
  local attempt = tonumber(redis.call('HGET', attempts, member) or 1) or 1
  if attempt > 1 then
    redis.call('HSET', attempts, member, int(attempt - 1))
  end
  wake(ARGV[3], ARGV[2], queue, redis.call('LPUSH', ready[queue], seq), 1)
end
return { now, #back }
