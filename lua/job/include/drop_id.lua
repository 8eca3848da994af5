-- drop_id: forget the caller's id of a job that is gone, unless another job has it now.
local function drop_id(u, id, seq)
  if id and redis.pcall('HGET', u, id) == seq then
    redis.call('HDEL', u, id)
  end
end
