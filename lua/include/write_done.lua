-- write_done: keep what keep_done left, or nothing.
local function write_done(m, done)
  if done then
    redis.call('HSET', m, 'done', done)
  else
    redis.call('HDEL', m, 'done')
  end
end
