-- Replaces one record if it is still the one that was read.
--
-- KEYS[1]   the record
-- ARGV[1]   the nonce of the record that is to be replaced, '' if there must be none
-- ARGV[2]   the new record, '' if there is to be none; left out, nothing is changed
-- ARGV[3]   for how many milliseconds it is kept, '' without end
-- ARGV[4..] the channels that are to hear of the change
--
-- The answer is the time in microseconds, and when the record is another one, first that record.
-- All that can be forbidden comes before the write: after an error nothing has changed.
local call, key, nonce, record = redis.call, KEYS[1], ARGV[1], ARGV[2]
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if not record then
  if call('GETRANGE', key, '1', '8') == nonce then
    return now
  end
elseif nonce == '' then
  if ARGV[3] == '' then
    if call('SET', key, record, 'NX') then
      return now
    end
  elseif call('SET', key, record, 'PX', ARGV[3], 'NX') then
    return now
  end
elseif call('GETRANGE', key, '1', '8') == nonce then
  for i = 4, #ARGV do
    call('PUBLISH', ARGV[i], key)
  end
  if record == '' then
    call('DEL', key)
  elseif ARGV[3] == '' then
    call('SET', key, record)
  else
    call('SET', key, record, 'PX', ARGV[3])
  end
  return now
end
return {call('GET', key), now}
