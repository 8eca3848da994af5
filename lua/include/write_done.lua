-- write_done: write the field done, or remove it where done is nil.
local function write_done(m, done)
  if done then
    redis.call('HSET', m, 'done', done)
  else
    redis.call('HDEL', m, 'done')
  end
end
