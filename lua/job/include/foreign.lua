-- foreign: whether the reply of redis.pcall is an error, as the wrong type of a key.
local function foreign(reply)
  return type(reply) == 'table' and reply.err ~= nil
end
