-- create_meta: write the hash of a new partition with the sequences [head, tail), and
-- further fields and values. call is redis.call, or redis.pcall where the caller reads
-- the error.
local function create_meta(call, m, head, tail, ...)
  return call('HSET', m, 'head', head, 'tail', tail, 'birth', head, ...)
end
