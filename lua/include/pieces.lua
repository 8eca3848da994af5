-- foreign: whether the reply of redis.pcall is an error, as the wrong type of a key.
local function foreign(reply)
  return type(reply) == 'table' and reply.err ~= nil
end

-- in_pieces: a command with more arguments than unpack takes (7,999; in miniredis about 5,000):
-- 1,000 at a time. Returns
-- the last reply, or the first that is an error.
local function in_pieces(call, command, key, list)
  local reply
  for from = 1, #list, 1000 do
    reply = call(command, key, unpack(list, from, math.min(from + 999, #list)))
    if foreign(reply) then
      return reply
    end
  end
  return reply
end

-- read_all: the reply of a command that reads many members, which unpack does not take
-- at once: 1,000 at a time; or the first that is an error.
local function read_all(call, command, key, members)
  if #members <= 1000 then
    return call(command, key, unpack(members))
  end
  local all = {}
  for from = 1, #members, 1000 do
    local to = math.min(from + 999, #members)
    local part = call(command, key, unpack(members, from, to))
    if foreign(part) then
      return part
    end
    for x = from, to do
      all[x] = part[x - from + 1]
    end
  end
  return all
end
