-- Replaces several records together: all of them if each is still the one that was read, and otherwise none.
--
-- KEYS   the records
-- ARGV   what record.lua says
--
-- The answer is the time in microseconds, and then for each record: 1 if it is still the one that was read, or
-- was replaced; otherwise the present record, nil if there is none; or that record and for how many more
-- microseconds another server's claim is in the way. All were replaced if each answer is 1. An error changed
-- nothing at all: who may not tell of a change is refused before the first write, and where one write is
-- allowed, for lack of memory or of replicas, all others of the same script are.
local answers, places, barred, all, at = {now}, {}, false, true, 1
for i = 1, #KEYS do
  local found = args[at] ~= '' and call('GETRANGE', KEYS[i], '1', '8') == args[at] and 1
  if not found then
    found = look(KEYS[i], at)
  end
  answers[i + 1], places[i] = found, at
  all = all and found == 1
  barred = barred or type(found) == 'table'
  at = at + 5 + tonumber(args[at + 4])
end
local function each(act)
  for i = 1, #KEYS do
    if not all or args[places[i] + 2] ~= 'read' then
      act(KEYS[i], places[i])
    end
  end
end
if all then
  each(tell)
  each(write)
elseif not barred then
  each(mark) -- on all records or on none, so that no two servers wait for each other
end
return answers
