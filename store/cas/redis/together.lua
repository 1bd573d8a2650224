-- Replaces several records together: all of them if each is still the one that was read, and otherwise none. It
-- does so for one set of records after the other, each by itself.
--
-- KEYS   the records of all sets
-- ARGV   for each set how many records it has, and for each of them what record.lua says
--
-- The answer is the time in microseconds, and then for each record: 1 if it is still the one that was read, or
-- was replaced; otherwise the present record, nil if there is none; or that record and for how many more
-- microseconds another server's claim is in the way. All of a set were replaced if each answer is 1. Errors in
-- the place of the answers of a set changed nothing of it: who may not tell of a change is refused before the
-- first write, and where one write is allowed, for lack of memory or of replicas, all others of the same script
-- are.
local function swap(answers, from, upto, at)
  local changed = {}
  together(answers, from, upto, at, function(key, place)
    if args[place + 2] ~= 'read' then
      changed[#changed + 1] = {key, place}
    end
  end)
  for i = 1, #changed do
    tell(changed[i][1], changed[i][2])
  end
  for i = 1, #changed do
    write(changed[i][1], changed[i][2])
  end
end

local answers, from, at = {now}, 1, 1
while from <= #KEYS do
  local upto = from + tonumber(args[at]) - 1
  local well, problem = pcall(swap, answers, from, upto, at + 1)
  at = at + 1
  for i = from, upto do
    if not well and type(problem) == 'table' then
      answers[i + 1] = problem
    elseif not well then
      answers[i + 1] = redis.error_reply(string.match(problem, '%-(%u.*)') or problem) -- before Redis 7
    end
    at = after(at)
  end
  from = upto + 1
end
return answers
