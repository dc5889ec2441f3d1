-- Sends recorded statements for sysbench: each event draws a kind of statement by its weight, and one of its samples.
--
-- A statement that fails is an ignored error, and another one is drawn. A kind of which the first TRIES statements fail is
-- left out from then on; a line "left out: ..." says so.
--
-- The file with the name of this one and the suffix .statements has a line per kind, "weight database samples", with the
-- name of the database in hexadecimal ("-": none), and an empty line; then "offset length" of each sample, ENTRY bytes
-- long; then the samples as they were logged.

local ENTRY = 20
local TRIES = 20
local kinds, sessions = {}, {}
local file, index, total, whole = nil, 0, 0, 0   -- total: the sum of the weights now, whole: at the beginning

-- Opens one session per database. One that does not exist under its recorded name is the database that the trial loads.
local function session_of(hex)
   local con = sysbench.sql.driver():connect()
   if sysbench.sql.driver():name() == "mysql" then
      con:query("SET NAMES utf8mb4")
   end
   if hex ~= "-" then
      local name = hex:gsub("..", function(byte) return string.char(tonumber(byte, 16)) end)
      local databases = con:query_row("SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = "
                                      .. "CONVERT(X'" .. hex .. "' USING utf8mb4)")
      if databases ~= "0" then
         con:query("USE `" .. name:gsub("`", "``") .. "`")
      end
   end
   return con
end

function thread_init()
   local samples = 0
   file = assert(io.open((os.getenv("DBBENCH_SCRIPT"):gsub("%.lua$", ".statements")), "rb"))
   file:setvbuf("no")
   for line in function() return file:read("*l") end do
      local weight, database, count = line:match("^(%d+) (%S+) (%d+)$")
      if not weight then break end
      sessions[database] = sessions[database] or session_of(database)
      kinds[#kinds + 1] = {weight = tonumber(weight), session = sessions[database], first = samples, samples = tonumber(count),
                            failed = 0}
      samples = samples + tonumber(count)
      total = total + tonumber(weight)
   end
   index = file:seek()
   whole = total
end

function thread_done()
   for _, con in pairs(sessions) do
      con:disconnect()
   end
end

local function bytes(offset, length)
   file:seek("set", offset)
   return file:read(length)
end

-- Counts failures until the first success. sysbench repeats the event, and so draws again.
local function fail(number, kind, text)
   kind.failed = kind.failed + 1
   if kind.failed == TRIES then
      print(string.format("left out: statement %d (%.1f %% of the calls): each of them fails: %s", number,
                          100 * kind.weight / whole, (text:sub(1, 100):gsub("%c", " "))))
      total = total - kind.weight
      kind.weight = 0
   end
   error(total > 0 and {errcode = sysbench.error.RESTART_EVENT} or "every statement fails")
end

function event()
   local point = sysbench.rand.uniform(1, total)
   for number, kind in ipairs(kinds) do
      point = point - kind.weight
      if point <= 0 and kind.weight > 0 then
         local entry = kind.first + sysbench.rand.uniform(0, kind.samples - 1)
         local offset, length = bytes(index + entry * ENTRY, ENTRY):match("(%d+) (%d+)")
         local text = bytes(index + tonumber(offset), tonumber(length))
         if not pcall(kind.session.query, kind.session, text) then
            fail(number, kind, text)
         end
         kind.failed = -math.huge
         return
      end
   end
end
