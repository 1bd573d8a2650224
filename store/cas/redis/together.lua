-- Replaces several records together: all of them if each is still the one that was read, and otherwise none.
--
-- KEYS   the records
-- ARGV   what record.lua says
--
-- The answer is the time in microseconds, and then for each record: 1 if it is still the one that was read,
-- or was replaced; otherwise the present record, nil if there is none; or that record and for how many more
-- microseconds another server's claim is in the way. All were replaced if each answer is 1. An error changed
-- nothing at all: who may not tell of a change is refused before the first write, and where one write is
-- allowed, for lack of memory or of replicas, all others of the same script are.
local changed = {}
local answers = together(1, function(key, at)
  if args[at + 2] ~= 'read' then
    changed[#changed + 1] = {key, at}
  end
end)
for i = 1, #changed do
  tell(changed[i][1], changed[i][2])
end
for i = 1, #changed do
  write(changed[i][1], changed[i][2])
end
return answers
