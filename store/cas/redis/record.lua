-- What the scripts swap.lua and together.lua have in common: they follow this text. Both are about records,
-- of each of which ARGV has, one after the other:
--        the nonce of the record that is to be replaced, '' if there must be none
--        the new record, '' if there is to be none
--        for how many milliseconds it is kept, '' without end, 'kept' for as long as the present one, or 'read'
--        if nothing is to be changed; with a + before it if there is more:
--        the server and for how many microseconds it claims the record if it is another one: no other
--        server replaces it then until this one has; '' if it claims nothing
--        how many channels are to hear of the change, and those channels
local call, args = redis.call, ARGV

-- A +, which stands before what has more behind it.
local MORE = 43

-- What a record begins with that nothing stands before.
local PLAIN = 1
-- What a record begins with that a server has claimed: the claim, in script.go of this package.
local CLAIMED, FIRST = 2, 26
-- What a record begins with that a change of several slots has prepared, or committed while others are still
-- to be settled, in spread.lua; and the length of an old record that there was not.
local PREPARED, COMMITTED, NONE = 3, 4, 99999999
-- The longest claim, MaxClaim of package cas. One that lasts for longer was made before the clock was set
-- back.
local LONGEST = 10000000

local time = call('TIME')
local now = time[1] * 1000000 + time[2] -- in microseconds

-- For how long a record is kept, and whether there are more arguments.
local function keeping(at)
  local keep = args[at + 2]
  if string.byte(keep) == MORE then
    return string.sub(keep, 2), true
  end
  return keep, false
end

local function claims(at)
  local _, more = keeping(at)
  return more and args[at + 3] or ''
end

-- Where the arguments about a record end, and those about the next begin.
local function after(at)
  local _, more = keeping(at)
  return more and at + 5 + tonumber(args[at + 4]) or at + 3
end

local function tell(key, at)
  for i = at + 5, after(at) - 1 do
    call('PUBLISH', args[i], key)
  end
end

local function put(key, record, keep)
  if record == '' then
    call('DEL', key)
  elseif keep == 'kept' then
    call('SET', key, record, 'KEEPTTL')
  elseif keep == '' then
    call('SET', key, record)
  else
    call('SET', key, record, 'PX', keep)
  end
end

-- What there is: 1 if it is the record that was read; otherwise the record, false if there is none, or that
-- record and how much longer another server's claim is in the way; or that a change of several slots is to
-- be settled first: its first key, its number and, of that key, the keys in other slots. What is not the
-- record that was read may be that one with a claim before it, or another one.
local function look(key, nonce, keep, claim)
  local present, rest = call('GET', key), 0
  if not present then
    return nonce == '' and 1
  end
  local form = string.byte(present)
  if form == PREPARED then
    local first = tonumber(string.sub(present, 66, 73))
    return {'unsettled', string.sub(present, 90, 89 + first), string.sub(present, 2, 17), ''}
  elseif form == COMMITTED then
    local others = tonumber(string.sub(present, 18, 25))
    return {'unsettled', key, string.sub(present, 2, 17), string.sub(present, 42, 41 + others)}
  elseif form == CLAIMED then
    if string.sub(present, 2, 9) ~= string.sub(claim, 1, 8) and keep ~= 'read' then
      rest = tonumber(string.sub(present, 10, FIRST - 1)) - now
      if rest > LONGEST then
        rest = 0
      end
    end
    present = string.sub(present, FIRST)
  end
  if rest > 0 then
    return {present, rest}
  end
  if nonce ~= '' and string.sub(present, 2, 9) == nonce then
    return 1
  end
  return present
end

-- Notes a claim on a record, if the change has one. It is no harm if there is no memory for it.
local function mark(key, at)
  local claim = claims(at)
  local present = claim ~= '' and call('GET', key)
  if present and (string.byte(present) or 0) <= CLAIMED then
    if string.byte(present) == CLAIMED then
      present = string.sub(present, FIRST)
    end
    local ends = string.format('%016.0f', now + tonumber(string.sub(claim, 9)))
    redis.pcall('SET', key, string.char(CLAIMED) .. string.sub(claim, 1, 8) .. ends .. present, 'KEEPTTL')
  end
end

-- Compares some of the records, does something with each if all are as they were read, and returns what there
-- is of each.
local function together(from, upto, at, act)
  local answers, places, barred, all = {}, {}, false, true
  for i = from, upto do
    local found = args[at] ~= '' and call('GETRANGE', KEYS[i], '1', '8') == args[at] and 1
    if not found then
      found = look(KEYS[i], args[at], keeping(at), claims(at))
    end
    answers[#answers + 1], places[i] = found, at
    all = all and found == 1
    barred = barred or type(found) == 'table'
    at = after(at)
  end
  for i = from, upto do
    if all then
      act(KEYS[i], places[i])
    elseif not barred then
      mark(KEYS[i], places[i]) -- on all records or on none, so that no two servers wait for each other
    end
  end
  return answers, all
end

-- Does something for which there may be an error, which is returned.
local function try(act, ...)
  local well, answer = pcall(act, ...)
  if well or type(answer) == 'table' then
    return answer
  end
  return redis.error_reply(string.match(answer, '%-(%u.*)') or answer) -- before Redis 7
end
