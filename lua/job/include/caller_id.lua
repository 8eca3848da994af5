-- caller_id: the caller's own id in a record, or nil.
local function caller_id(record)
  return string.match(record, '^%d+ %d+@([%w_-]+)')
end
