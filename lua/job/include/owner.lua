-- owner_of: the owner that a specification names, '' where there is none. Its JSON is the service's own, with the owner first.
local function owner_of(spec)
  return string.match(spec or '', '^{"owner":"([^"]+)"') or ''
end
