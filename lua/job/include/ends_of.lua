-- ends_of: when the ttl of a job ends, ms, 0 = never; nil where another program wrote the record, or there is none.
local function ends_of(record)
  return record and tonumber(string.sub(record, 1, 13)) or nil
end
