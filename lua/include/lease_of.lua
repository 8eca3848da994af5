-- lease_of: the length of a lease in ms, which its token begins with; 0 where there is none.
local function lease_of(token)
  return tonumber(string.match(token or '', '^(%d+)%.') or 0)
end
