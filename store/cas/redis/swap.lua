-- Replaces records, each if it is still the one that was read.
--
-- KEYS   the records
-- ARGV   what record.lua says
--
-- The answer is the time in microseconds, and then for each record: 1 if it was replaced, or is still the
-- same; otherwise the present record, nil if there is none; or that record and for how many more microseconds
-- another server's claim is in the way; or the error, after which it has not changed:
-- all that can be forbidden comes before the write. An error instead of all that changed nothing at all.
local function replace(key, at, keep, more)
  if keep ~= 'read' then
    if more then
      tell(key, at)
    end
    put(key, args[at + 1], keep)
  end
  return 1
end

local function swap(key, at)
  local nonce, keep, more = args[at], keeping(at)
  if nonce ~= '' then
    if call('GETRANGE', key, '1', '8') == nonce then
      return replace(key, at, keep, more)
    end
  elseif keep == '' then
    if call('SET', key, args[at + 1], 'NX') then
      return 1
    end
  elseif keep ~= 'read' and call('SET', key, args[at + 1], 'PX', keep, 'NX') then
    return 1
  end
  local found = look(key, nonce, keep, more and args[at + 3] or '')
  if found == 1 then
    return replace(key, at, keep, more)
  elseif more and type(found) == 'string' then
    mark(key, at)
  end
  return found
end

local keys, answers, at = KEYS, {now}, 1
for i = 1, #keys do
  local key, nonce, record = keys[i], args[at], args[at + 1]
  -- Most are replaced here: calling a function for each took a sixth of the script's time. If the reading fails,
  -- the function below meets the same error, and answers it.
  if args[at + 2] == 'kept' and record ~= '' and redis.pcall('GETRANGE', key, '1', '8') == nonce then
    local set = redis.pcall('SET', key, record, 'KEEPTTL')
    answers[i + 1] = set.err and set or 1
    at = at + 3
  else
    answers[i + 1] = try(swap, key, at)
    at = after(at)
  end
end
return answers
