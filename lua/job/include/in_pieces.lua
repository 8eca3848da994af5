-- in_pieces: a command with more arguments than unpack takes: 1,000 at a time. Returns
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
