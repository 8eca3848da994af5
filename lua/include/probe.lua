-- open_probe: begin a probe of rights. Returns its reply so far, and two functions. try
-- runs a command, and adds it to the reply where the server rejects it. can_delete says
-- whether no try but that of TIME was rejected yet. After false, try writes nothing: it
-- asks the server for the right to a command.
local function open_probe()
  local timed, now = pcall(function() return time() end)
  local result = { timed and now or 0, 0 }
  local function rejected(command, err)
    result[2] = result[2] + 1
    result[#result + 1] = command
    result[#result + 1] = err
  end
  if not timed then
    rejected('TIME', type(now) == 'table' and now.err or tostring(now))
  end
  local clean = true -- what is written can be deleted again
  local function try(command, ...)
    if not clean and (not redis.acl_check_cmd or redis.acl_check_cmd(command, ...)) then
      return
    end
    local reply = redis.pcall(command, ...)
    if type(reply) == 'table' and reply.err then
      rejected(command, reply.err)
    end
  end
  local function can_delete()
    clean = result[2] == 0 or result[2] == 1 and not timed
    return clean
  end
  return result, try, can_delete
end
