-- Replaces records, each if it is still the one that was read.
--
-- KEYS   the records
-- ARGV   for each of them, one after the other:
--        the nonce of the record that is to be replaced, '' if there must be none
--        the new record, '' if there is to be none
--        for how many milliseconds it is kept, '' without end, or 'read' if nothing is to be changed
--        the server and for how many microseconds it claims the record if it is another one: no other
--        server replaces it then until this one has; '' if it claims nothing
--        how many channels are to hear of the change, and those channels
--
-- The answer is the time in microseconds, and then for each record: 1 if it was replaced, or is still the
-- same; otherwise the present record, nil if there is none; or that record and for how many more microseconds
-- another server's claim is in the way; or the error, after which it has not changed:
-- all that can be forbidden comes before the write. An error instead of all that changed nothing at all.
local call, args = redis.call, ARGV

-- What a record begins with that a server has claimed: the claim, in script.go of this package.
local CLAIMED, FIRST = 2, 26
-- The longest claim, MaxClaim of package cas. One that lasts for longer was made before the clock was set back.
local LONGEST = 10000000
local now -- in microseconds

local function replace(key, at, channels)
  local record, keep = args[at + 1], args[at + 2]
  if keep == 'read' then
    return 1
  end
  for i = at + 5, at + 4 + channels do
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

-- What is not the record that was read may be that one with a claim before it, or another one.
local function differs(key, at, channels)
  local nonce, keep, claim = args[at], args[at + 2], args[at + 3]
  local present, mine, rest = call('GET', key), string.sub(claim, 1, 8), 0
  if not present then
    return present
  end
  if string.byte(present) == CLAIMED then
    if string.sub(present, 2, 9) ~= mine and keep ~= 'read' then
      rest = tonumber(string.sub(present, 10, FIRST - 1)) - now
      if rest > LONGEST then
        rest = 0
      end
    end
    present = string.sub(present, FIRST)
    if rest <= 0 and string.sub(present, 2, 9) == nonce then
      return replace(key, at, channels)
    end
  end
  if rest > 0 then
    return {present, rest}
  end
  if claim ~= '' then -- it is no harm if there is no memory for it
    local ends = string.format('%016.0f', now + tonumber(string.sub(claim, 9)))
    redis.pcall('SET', key, string.char(CLAIMED) .. mine .. ends .. present, 'KEEPTTL')
  end
  return present
end

local function swap(key, at, channels)
  local nonce, record, keep = args[at], args[at + 1], args[at + 2]
  if keep ~= 'read' and nonce == '' then
    if keep == '' then
      if call('SET', key, record, 'NX') then
        return 1
      end
    elseif call('SET', key, record, 'PX', keep, 'NX') then
      return 1
    end
  elseif call('GETRANGE', key, '1', '8') == nonce then
    return replace(key, at, channels)
  end
  return differs(key, at, channels)
end

local time = call('TIME')
now = time[1] * 1000000 + time[2]
local answers, at = {now}, 1
for i = 1, #KEYS do
  local channels = tonumber(args[at + 4])
  local well, answer = pcall(swap, KEYS[i], at, channels)
  if well or type(answer) == 'table' then
    answers[i + 1] = answer
  else
    answers[i + 1] = redis.error_reply(string.match(answer, '%-(%u.*)') or answer) -- before Redis 7
  end
  at = at + 5 + channels
end
return answers
