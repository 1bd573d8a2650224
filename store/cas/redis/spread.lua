-- Replaces records in several slots of a cluster together, in steps: prepare in each slot, commit in the
-- first, settle in the others, clear the first. Whoever meets a record that is prepared judges in the first
-- slot whether it was committed.
--
-- KEYS      the records, all of one slot
-- ARGV[1]   the step
-- ARGV[2]   the change, 16 hexadecimal digits
-- ARGV[3]   prepare: the first key; commit and clear: the keys in other slots; settle: 'commit' or 'abort'
-- ARGV[4]   prepare: for how many microseconds the change may still be committed
-- and behind these, for prepare, what record.lua says of each record.
--
-- The answer is the time, and what came of each record: of prepare, what together.lua answers; of commit, judge and
-- abort, which lets nobody commit it any more, of the first record: 1 if the change is committed, 0 if it is
-- not and will not be, and otherwise how many microseconds it may still be, made negative; of the others, 1.
local step, id, extra, lasts = args[1], args[2], args[3], args[4]

local function digits(n) return string.format('%016.0f', n) end

-- A record that is prepared: the change, until when it may be committed, when the old record was to go and
-- for how long the new one is kept (0 without end), three lengths, and the first key, the old record, the
-- channels and the new record.
local function prepare(key, at)
  if keeping(at) == 'read' then
    return
  end
  local old, left, wakes = call('GET', key), call('PTTL', key), {}
  if old and string.byte(old) == CLAIMED then
    old = string.sub(old, FIRST)
  end
  for i = at + 5, after(at) - 1 do
    wakes[#wakes + 1] = args[i]
  end
  wakes = table.concat(wakes, '\n')
  local keep = tonumber((keeping(at))) or 0
  if args[at + 1] == '' then
    keep = 1 -- it is deleted
  end
  local whole = string.char(PREPARED) .. id .. digits(now + tonumber(lasts)) ..
    digits(left > 0 and now + left * 1000 or 0) .. digits(keep) ..
    string.format('%08d%08d%08d', #extra, old and #old or NONE, #wakes) ..
    extra .. (old or '') .. wakes .. args[at + 1]
  -- It outlives both records, so that nothing is lost when it is settled late.
  if old and left < 0 or keep == 0 then
    call('SET', key, whole)
  else
    call('SET', key, whole, 'PX', math.max(left, keep) + 60000)
  end
end

-- The parts of a record that this change has prepared; nil when it has not.
local function prepared(key)
  local whole = call('GET', key)
  if not whole or string.byte(whole) ~= PREPARED or string.sub(whole, 2, 17) ~= id then
    return nil
  end
  local number = function(from, to) return tonumber(string.sub(whole, from, to)) end
  local first, old, wakes = number(66, 73), number(74, 81), number(82, 89)
  local at = 90 + first
  local p = {untilTime = number(18, 33), goes = number(34, 49), keep = number(50, 65)}
  if old ~= NONE then
    p.old = string.sub(whole, at, at + old - 1)
    at = at + old
  end
  p.wakes, p.new = string.sub(whole, at, at + wakes - 1), string.sub(whole, at + wakes)
  return p
end

local function restore(key, p)
  if not p.old or p.goes > 0 and p.goes <= now then
    call('DEL', key)
  elseif p.goes == 0 then
    call('SET', key, p.old)
  else
    call('SET', key, p.old, 'PX', math.ceil((p.goes - now) / 1000))
  end
end

-- How many milliseconds longer than its record a note of a commit is kept: so long that no prepared record is
-- left that would ask for it, or be found not to be committed.
local NOTED = 30 * 24 * 3600000

-- Writes the new record, behind the note that others are still to be settled, if they are.
local function finish(key, p, note)
  for channel in string.gmatch(p.wakes, '[^\n]+') do
    call('PUBLISH', channel, key)
  end
  if note == '' and p.new == '' then
    call('DEL', key)
  elseif p.keep == 0 then
    call('SET', key, note .. p.new)
  else
    call('SET', key, note .. p.new, 'PX', note == '' and p.keep or p.keep + NOTED)
  end
end

local function committed(key)
  local whole = call('GET', key)
  return whole and string.byte(whole) == COMMITTED and string.sub(whole, 2, 17) == id and whole
end

local function judge(key)
  local p = prepared(key)
  if not p then
    return committed(key) and 1 or 0
  end
  local rest = p.untilTime - now
  if rest > 0 and rest <= LONGEST then
    return -rest
  end
  restore(key, p)
  return 0
end

local function settle(key, how)
  local p = prepared(key)
  if p and (how or extra) == 'commit' then
    finish(key, p, '')
  elseif p then
    restore(key, p)
  end
  return 1
end

-- What the first key says counts for all.
local function commit(key)
  if key ~= KEYS[1] then
    return settle(key, committed(KEYS[1]) and 'commit' or 'abort')
  end
  local p = prepared(key)
  if not p or p.untilTime <= now then
    return judge(key)
  end
  local goes = digits(p.keep > 0 and now + p.keep * 1000 or 0) -- when the record is to go
  finish(key, p, string.char(COMMITTED) .. id .. string.format('%08d', #extra) .. goes .. extra)
  return 1
end

-- Only for who knows all the keys that are to be settled before. A server that met the first record before
-- it was committed does not.
local function clear(key)
  local whole = committed(key)
  local others = whole and tonumber(string.sub(whole, 18, 25))
  if whole and string.sub(whole, 42, 41 + others) == extra then
    local goes, record = tonumber(string.sub(whole, 26, 41)), string.sub(whole, 42 + others)
    if record == '' or goes > 0 and goes <= now then
      call('DEL', key)
    elseif goes == 0 then
      call('SET', key, record)
    else
      call('SET', key, record, 'PX', math.ceil((goes - now) / 1000))
    end
  end
  return 1
end

if step == 'prepare' then
  return {now, (together(1, #KEYS, 5, prepare))}
end
-- What its own server gives up nobody commits.
local function abort(key)
  local p = prepared(key)
  if p then
    restore(key, p)
  end
  return committed(key) and 1 or 0
end

local steps, answers = {judge = judge, commit = commit, settle = settle, clear = clear, abort = abort}, {}
for i = 1, #KEYS do
  answers[i] = steps[step](KEYS[i])
end
return {now, answers}
