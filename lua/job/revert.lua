-- revert: take back a claim with an unknown outcome.
--
-- Does nothing where the claim did not run. Jobs that moved on since are left alone.
--
-- KEYS[1] hash      attempts of jobs that were claimed before
-- KEYS[2] zset      leases by deadline, ms
-- KEYS[3] string    what the lane's last claim handed out
-- KEYS[4..] list    ready jobs of each queue that the claim asked for; then, where leases are counted, the spare keys
-- ARGV[1] string    token of the claim
-- ARGV[2] string    beginning of the channels that wake who waits
-- ARGV[3] string    the command that wakes: publish, or spublish in a cluster
-- ARGV[4..] string  names of the queues
-- RETURNS {now, jobs}  given back at the head, uncounted
--
-- USES int, time, foreign, in_pieces, read_all, wake, push
local attempts, lease, out = KEYS[1], KEYS[2], KEYS[3]
if #KEYS ~= #ARGV and #KEYS ~= #ARGV + 5 or #ARGV < 3 then
  return redis.error_reply('ERR revert: bad arguments')
end
local now = time()
local text = redis.pcall('GET', out)
local prefix = ARGV[1] .. '\n'
if not text or foreign(text) or string.sub(text, 1, #prefix) ~= prefix then
  return { now, 0 }
end
local named, open = {}, {}
local slots
if #KEYS > #ARGV then
  -- WITH open_slots
  slots = open_slots(KEYS[#KEYS])
end
for i = 4, #ARGV do
  if not foreign(redis.pcall('LLEN', KEYS[i])) then
    named[ARGV[i]] = { name = ARGV[i], r = KEYS[i], head = {}, tail = {} }
    open[#open + 1] = named[ARGV[i]]
  end
end
local seqs, owner, members, deadlines, deadline = {}, {}, {}, {}, 0
for line in string.gmatch(string.sub(text, #prefix + 1), '[^\n]+') do
  local seq, queue = string.match(line, '^(%d+) (.+)$')
  if not seq then
    deadline = tonumber(line) -- of the jobs that follow
  elseif named[queue] then
    local m = #members + 1
    seqs[m], owner[m], members[m], deadlines[m] = seq, named[queue], line, deadline
  end
end
if #members == 0 then
  return { now, 0 }
end
local scores, before = read_all(redis.call, 'ZMSCORE', lease, members), read_all(redis.call, 'HMGET', attempts, members)
local gone, counted = {}, {}
for x, member in ipairs(members) do
  -- Whoever says how far a first attempt got holds it, so its client had the answer.
  if scores[x] and math.floor(tonumber(scores[x])) == deadlines[x] and before[x] ~= '1' then
    gone[#gone + 1] = member
    if slots then
      slots.free(owner[x].name, owner[x].r, seqs[x])
    end
    local head = owner[x].head
    head[#head + 1] = seqs[x]
    local attempt = tonumber(before[x] or 1) or 1
    if attempt > 1 then
      counted[#counted + 1] = member
      counted[#counted + 1] = int(attempt - 1)
    end
  end
end
redis.call('DEL', out) -- a first write that needs no memory
in_pieces(redis.call, 'ZREM', lease, gone)
in_pieces(redis.call, 'HSET', attempts, counted)
for _, k in ipairs(open) do
  push(ARGV[3], ARGV[2], k)
end
if slots then
  slots.close()
end
return { now, #gone }
