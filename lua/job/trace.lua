-- trace: note what happened to jobs, and forget traces that are over, or too many.
--
-- A trace has about 4 KiB of lines at most: beyond, the oldest go, but the first. The traces that would be forgotten first
-- make room for new ones. A full store rejects the whole call, unless it has no event.
--
-- KEYS[1] hash      traces: "<sequence> <queue>" → lines
-- KEYS[2] zset      the same members by when they are forgotten, ms
-- ARGV[1] int       traces that the shard keeps at most
-- ARGV[2..] mixed   for each event: member, ms that its trace is kept from now on, line
-- RETURNS {now, forgotten}  forgotten: how many traces, 1,000 at most of each kind
--
-- USES whole, int, time, foreign, in_pieces
local traces, ends, most = KEYS[1], KEYS[2], whole(ARGV[1], 0)
if #KEYS ~= 2 or not most or (#ARGV - 1) % 3 ~= 0 then
  return redis.error_reply('ERR trace: bad arguments')
end
local now = time()
local texts, fields, scores, at = {}, {}, {}, {}
for i = 2, #ARGV, 3 do
  local member, keep, line = ARGV[i], whole(ARGV[i + 1], 1), ARGV[i + 2]
  if not keep then
    return redis.error_reply('ERR trace: bad arguments')
  end
  local text = texts[member]
  if not text then
    text = redis.call('HGET', traces, member) or ''
    at[member] = #fields + 1
  end
  text = text .. line .. '\n'
  while #text > 4096 do
    local first = string.find(text, '\n', 1, true)
    local second = string.find(text, '\n', first + 1, true)
    if not second then
      break
    end
    text = string.sub(text, 1, first) .. string.sub(text, second + 1)
  end
  texts[member] = text
  local x = at[member]
  fields[x], fields[x + 1] = member, text
  scores[x], scores[x + 1] = int(now + keep), member
end
in_pieces(redis.call, 'HSET', traces, fields)
in_pieces(redis.call, 'ZADD', ends, scores)

local forgotten = 0
local function drop(members)
  in_pieces(redis.call, 'ZREM', ends, members)
  in_pieces(redis.call, 'HDEL', traces, members)
  forgotten = forgotten + #members
end
drop(redis.call('ZRANGE', ends, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, 1000))
local over = math.min(redis.call('ZCARD', ends) - most, 1000)
if over > 0 then
  drop(redis.call('ZRANGE', ends, 0, over - 1))
end
return { now, forgotten }
