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
  local nonce, record = args[at], args[at + 1]
  local keep, more = keeping(at)
  if keep ~= 'read' and nonce == '' then
    if keep == '' then
      if call('SET', key, record, 'NX') then
        return 1
      end
    elseif call('SET', key, record, 'PX', keep, 'NX') then
      return 1
    end
  elseif call('GETRANGE', key, '1', '8') == nonce then
    return replace(key, at, keep, more)
  end
  local found = look(key, nonce, keep, claims(at))
  if found == 1 then
    return replace(key, at, keep, more)
  elseif type(found) == 'string' then
    mark(key, at)
  end
  return found
end

local answers, at = {now}, 1
for i = 1, #KEYS do
  answers[i + 1] = try(swap, KEYS[i], at)
  at = after(at)
end
return answers
