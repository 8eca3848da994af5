-- is_over: whether a job has a ttl that ended. Then it exists only as a dead letter, or until its lease is over.
local function is_over(record, now)
  local ends = ends_of(record)
  return ends and ends > 0 and ends <= now
end
