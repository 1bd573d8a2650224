-- Replaces several records together, if each is still the one that was read, and otherwise none. It
-- does so for one set of records after the other, each by itself.
--
-- KEYS   the records of all sets
-- ARGV   for each set how many records it has, and then the new records, if each has the nonce of the one that
--        it is to replace behind its own, and is kept for as long as that. Before the number is a + if that is
--        not so of all of them, and behind it what record.lua says of each.
--
-- The answer is the time in microseconds, and then for each set: 1 if all were replaced, or are still those that
-- were read; or for each record: 1 if it is still the one that was read; otherwise the present record, nil if
-- there is none; or that record and for how many more microseconds another server's claim is in the way. If it is
-- 1 for all sets, only the time. An error in the place of the answer of a set changed nothing of it: who may not
-- tell of a change is refused before the first write, and where one write is allowed, for lack of memory or of
-- replicas, all others of the same script are.
local function swap(from, upto, at)
  local changed = {}
  local answers, all = together(from, upto, at, function(key, place)
    if keeping(place) ~= 'read' then
      changed[#changed + 1] = {key, place}
    end
  end)
  for i = 1, #changed do
    tell(changed[i][1], changed[i][2])
  end
  for i = 1, #changed do
    put(changed[i][1], args[changed[i][2] + 1], (keeping(changed[i][2])))
  end
  return all and 1 or answers
end

local sub = string.sub

-- Does so for a set without more than that.
local function swapPlain(from, upto, at)
  local same, before = true, at - from
  for i = from, upto do
    same = same and call('GETRANGE', KEYS[i], '1', '8') == sub(args[before + i], 11, 18)
  end
  if not same then
    local answers, all = {}, true
    for i = from, upto do
      local found = look(KEYS[i], sub(args[before + i], 11, 18), 'kept', '')
      answers[#answers + 1], all = found, all and found == 1
    end
    if not all then
      return answers
    end
  end
  for i = from, upto do
    call('SET', KEYS[i], args[before + i], 'KEEPTTL')
  end
  return 1
end

local answers, all, from, at = {now}, true, 1, 1
while from <= #KEYS do
  local number = args[at]
  local upto, answer = from + tonumber(number) - 1, nil
  at = at + 1
  if string.byte(number) == MORE then
    answer = try(swap, from, upto, at)
    for _ = from, upto do
      at = after(at)
    end
  else
    answer = try(swapPlain, from, upto, at)
    at = at + upto - from + 1
  end
  answers[#answers + 1] = answer
  all = all and answer == 1
  from = upto + 1
end
return all and {now} or answers
