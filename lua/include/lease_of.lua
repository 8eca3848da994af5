-- lease_of: how long a lease lasts, ms, which its token begins with; 0 for none.
local function lease_of(token)
  return tonumber(string.match(token or '', '^(%d+)%.') or 0)
end
