-- Replaces records, each if it is still the one that was read.
--
-- KEYS   the records
-- ARGV   for each of them, one after the other:
--        the nonce of the record that is to be replaced, '' if there must be none
--        the new record, '' if there is to be none
--        for how many milliseconds it is kept, '' without end, or 'read' if nothing is to be changed
--        how many channels are to hear of the change, and those channels
--
-- The answer is the time in microseconds, and then for each record: 1 if it was replaced, or is still the
-- same; otherwise the present record, nil if there is none; or the error, after which it has not changed:
-- all that can be forbidden comes before the write. An error instead of all that changed nothing at all.
local call, args = redis.call, ARGV

local function swap(key, at, channels)
  local nonce, record, keep = args[at], args[at + 1], args[at + 2]
  if keep == 'read' then
    if call('GETRANGE', key, '1', '8') == nonce then
      return 1
    end
  elseif nonce == '' then
    if keep == '' then
      if call('SET', key, record, 'NX') then
        return 1
      end
    elseif call('SET', key, record, 'PX', keep, 'NX') then
      return 1
    end
  elseif call('GETRANGE', key, '1', '8') == nonce then
    for i = at + 4, at + 3 + channels do
      call('PUBLISH', args[i], key)
    end
    if record == '' then
      call('DEL', key)
    elseif keep == '' then
      call('SET', key, record)
    else
      call('SET', key, record, 'PX', keep)
    end
    return 1
  end
  return call('GET', key)
end

local time = call('TIME')
local answers, at = {time[1] * 1000000 + time[2]}, 1
for i = 1, #KEYS do
  local channels = tonumber(args[at + 3])
  local well, answer = pcall(swap, KEYS[i], at, channels)
  if well or type(answer) == 'table' then
    answers[i + 1] = answer
  else
    answers[i + 1] = redis.error_reply(string.match(answer, '%-(%u.*)') or answer) -- before Redis 7
  end
  at = at + 4 + channels
end
return answers
