-- Replaces records, each if it is still the one that was read, and reads others.
--
-- KEYS   the records
-- ARGV   for each of them one of these:
--        the new record, if it has the nonce of the one that it is to replace behind its own. Before it, if it is
--        not kept for as long as that one, an e and for how many milliseconds it is kept
--        an r and the nonce of the record that is known, if it is only read; an r alone if none is known
--        an empty one, and then what record.lua says of it
--
-- The answer is the time in microseconds, and then for each record: 1 if it was replaced, or is still the one that
-- is known; otherwise the present record, nil if there is none; or that record and for how many more microseconds
-- another server's claim is in the way; or the error, after which it has not changed: all that can be forbidden
-- comes before the write. If it is 1 for all of them, only the time. An error instead of all that changed nothing
-- at all.
local READ, EXPIRY = 114, 101

local function replace(key, at, more)
  if more then
    tell(key, at)
  end
  local keep = keeping(at)
  put(key, args[at + 1], keep)
  return 1
end

local function swap(key, at)
  local nonce, keep, more = args[at], keeping(at)
  if nonce ~= '' then
    if call('GETRANGE', key, '1', '8') == nonce then
      return replace(key, at, more)
    end
  elseif keep == '' then
    if call('SET', key, args[at + 1], 'NX') then
      return 1
    end
  elseif call('SET', key, args[at + 1], 'PX', keep, 'NX') then
    return 1
  end
  local found = look(key, nonce, keep, more and args[at + 3] or '')
  if found == 1 then
    return replace(key, at, more)
  elseif more and type(found) == 'string' then
    mark(key, at)
  end
  return found
end

-- Replaces a record that is, at first sight, not the one that was read.
local function swapPlain(key, record, nonce, keep)
  local found = look(key, nonce, keep, '')
  if found == 1 then
    put(key, record, keep)
  end
  return found
end

local attempt, byte, sub = redis.pcall, string.byte, string.sub
local answers, all, at = {now}, true, 1
for i = 1, #KEYS do
  local key, what, answer = KEYS[i], args[at], 1
  local form, keep = byte(what), 'kept'
  at = at + 1
  if form == EXPIRY then
    form, keep, what = PLAIN, sub(what, 2), args[at]
    at = at + 1
  end
  -- Calling a function for each of the first two took a sixth of the script's time. If one of their commands
  -- fails, the function behind it meets the same error, and answers it.
  if form == PLAIN then
    local nonce = sub(what, 11, 18)
    if attempt('GETRANGE', key, '1', '8') == nonce then
      local set = keep == 'kept' and attempt('SET', key, what, 'KEEPTTL') or attempt('SET', key, what, 'PX', keep)
      answer = set.err and set or 1
    else
      answer = try(swapPlain, key, what, nonce, keep)
    end
  elseif form == READ then
    local nonce = sub(what, 2)
    if nonce == '' or attempt('GETRANGE', key, '1', '8') ~= nonce then
      answer = attempt('GET', key)
      if type(answer) == 'string' and byte(answer) ~= PLAIN then
        answer = try(look, key, nonce, 'read', '')
      end
    end
  else
    answer = try(swap, key, at)
    at = after(at)
  end
  answers[i + 1] = answer
  all = all and answer == 1
end
return all and {now} or answers
