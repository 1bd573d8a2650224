-- Replaces several records together, if each is still the one that was read, and otherwise none. It
-- does so for one set of records after the other, each by itself.
--
-- KEYS   the records of all sets
-- ARGV   for each set how many records it has, and for each of them the nonce of the record that is to be
--        replaced and the new record, which is kept as long as the present one. Before the number is a + if that
--        is not so of all of them, and behind it what record.lua says of each.
--
-- The answer is the time in microseconds, and then for each set: 1 if all were replaced, or are still those that
-- were read; or for each record: 1 if it is still the one that was read; otherwise the present record, nil if
-- there is none; or that record and for how many more microseconds another server's claim is in the way. An
-- error in the place of the answer of a set changed nothing of it: who may not tell of a change is refused
-- before the first write, and where one write is allowed, for lack of memory or of replicas, all others of the
-- same script are.
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

-- Does so for a set without more than that.
local function swapPlain(from, upto, at)
  local same, place = true, at
  for i = from, upto do
    same = same and call('GETRANGE', KEYS[i], '1', '8') == args[place]
    place = place + 2
  end
  if not same then
    local answers, all = {}, true
    place = at
    for i = from, upto do
      local found = look(KEYS[i], args[place], 'kept', '')
      answers[#answers + 1], all, place = found, all and found == 1, place + 2
    end
    if not all then
      return answers
    end
  end
  for i = from, upto do
    call('SET', KEYS[i], args[at + 1], 'KEEPTTL')
    at = at + 2
  end
  return 1
end

local answers, from, at = {now}, 1, 1
while from <= #KEYS do
  local number = args[at]
  local upto = from + tonumber(number) - 1
  at = at + 1
  if string.byte(number) == MORE then
    answers[#answers + 1] = try(swap, from, upto, at)
    for _ = from, upto do
      at = after(at)
    end
  else
    answers[#answers + 1] = try(swapPlain, from, upto, at)
    at = at + 2 * (upto - from + 1)
  end
  from = upto + 1
end
return answers
