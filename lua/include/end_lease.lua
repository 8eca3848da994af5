-- end_lease: take a lease from its holder. The range stays.
local function end_lease(m)
  redis.call('HDEL', m, 'token', 'from')
end
