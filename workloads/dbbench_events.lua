-- Runs an unchanged sysbench script and counts the latency of each of its events per second.
--
-- sysbench loads this file into the Lua state of every thread. It loads the script in DBBENCH_SCRIPT into that state
-- (a name is found like sysbench's own scripts, a path is opened) and wraps its event(). The loop of sysbench is not
-- changed: when it calls event() again after an ignored error (for example a deadlock), the time of the first call
-- counts, so that the latency includes all attempts, and the error is counted.
--
-- A script may have a function dbbench_pause(), which returns the seconds to wait before the next event. They are not
-- part of its latency.
--
-- Environment: DBBENCH_SCRIPT  name or path of the script
--              DBBENCH_BEGIN   second 0 of the load, seconds of CLOCK_MONOTONIC
--              DBBENCH_OUT     folder for the counts, not on the device under test
--              DBBENCH_OPTIONS "name=value ...": the dataset's parameters, for the options of the script that have
--                              these names
--              DBBENCH_PARTS   1: count the parts of a transaction of sysbench's own scripts as kinds (see the end)
--              DBBENCH_QUEUE   1: also write the latencies with the wait in the queue (see the end)
--
-- DBBENCH_OUT/events.THREAD has lines "second what value", written when the second is over:
--   what >= 0   bucket of dbbench/metrics/histogram.py, from e^(what/100) us, 1 % wide; value = events in it
--   what = -1   value = attempts that ended in an ignored error
--   what = -2   value = longest latency in us, rounded up
--   what < -10  value = events of kind -what - 10 (1 to 9), the value of the global dbbench_kind after the event; or
--               parts of events: 1 reads, 2 writes, 3 commits
--   what <= -10000  value = events of a kind in a bucket: -what is 10000 * kind + bucket
-- Several lines with the same second and bucket add up.

local ffi = require("ffi")

ffi.cdef[[
typedef struct { long seconds; long nanoseconds; } dbbench_time;
int clock_gettime(int clock, dbbench_time *now);
int nanosleep(const dbbench_time *asked, dbbench_time *left);
]]

local CLOCK_MONOTONIC = 1
local BUCKETS = 2400      -- the last bucket begins at e^24 us, 7 hours
local BUFFER = 65536      -- bytes; a thread writes some kB per second

local script = assert(os.getenv("DBBENCH_SCRIPT"), "DBBENCH_SCRIPT is not set")
local begin = assert(tonumber(os.getenv("DBBENCH_BEGIN")), "DBBENCH_BEGIN is not set")
local folder = assert(os.getenv("DBBENCH_OUT"), "DBBENCH_OUT is not set")

if script:find("/", 1, true) then
   package.path = script:match("^.*/") .. "?.lua;" .. package.path   -- for the files next to it
   dofile(script)
else
   require(script)
end

for name, value in (os.getenv("DBBENCH_OPTIONS") or ""):gmatch("(%S+)=(%S+)") do
   local option = sysbench.cmdline.options and sysbench.cmdline.options[name]
   if option then
      option[2] = type(option[2]) ~= "string" and tonumber(value) or value   -- its default
   end
end

local clock = ffi.new("dbbench_time[1]")

-- Seconds since DBBENCH_BEGIN.
local function now()
   ffi.C.clock_gettime(CLOCK_MONOTONIC, clock)
   return tonumber(clock[0].seconds) - begin + tonumber(clock[0].nanoseconds) * 1e-9
end

local function opened(name)
   local file = assert(io.open(folder .. "/" .. name, "w"))
   file:setvbuf("full", BUFFER)
   return file
end

-- The counts of the current second ---------------------------------------------------------------------

local ceil, floor, log = math.ceil, math.floor, math.log
local counts = ffi.new("uint32_t[?]", BUCKETS)
local lowest, highest = BUCKETS, -1
local second, errors, longest = 0, 0, 0
local kinds = {}          -- dbbench_kind -> number of events
local of_kinds = {}       -- dbbench_kind -> counts by bucket
local file

local function write_second()
   file = file or opened("events." .. sysbench.tid)
   for bucket = lowest, highest do
      if counts[bucket] > 0 then
         file:write(second, " ", bucket, " ", counts[bucket], "\n")
         counts[bucket] = 0
      end
   end
   if errors > 0 then
      file:write(second, " -1 ", errors, "\n")
   end
   if longest > 0 then
      file:write(second, " -2 ", ceil(longest), "\n")
   end
   for kind, events in pairs(kinds) do
      file:write(second, " ", -10 - kind, " ", events, "\n")
   end
   for kind, buckets in pairs(of_kinds) do
      for bucket = lowest, highest do
         if buckets[bucket] > 0 then
            file:write(second, " ", -10000 * kind - bucket, " ", buckets[bucket], "\n")
            buckets[bucket] = 0
         end
      end
   end
   kinds = {}
   lowest, highest, errors, longest = BUCKETS, -1, 0, 0
end

local function turn_to(moment)
   local current = floor(moment)
   if current ~= second then
      write_second()
      second = current
   end
end

local function add(buckets, latency_us)
   local bucket = 0
   if latency_us > 1 then
      bucket = floor(100 * log(latency_us))
      if bucket >= BUCKETS then
         bucket = BUCKETS - 1
      end
   end
   buckets[bucket] = buckets[bucket] + 1
   if bucket < lowest then lowest = bucket end
   if bucket > highest then highest = bucket end
end

local function add_of_kind(kind, latency_us)
   local buckets = of_kinds[kind] or ffi.new("uint32_t[?]", BUCKETS)
   of_kinds[kind] = buckets
   add(buckets, latency_us)
   kinds[kind] = (kinds[kind] or 0) + 1
end

-- Wait at most until one second after the end of the load. sysbench's clock, which starts later than this one, has then
-- reached the end too; the event that follows is outside of every window.
local function wait(seconds)
   local until_s = math.min(now() + seconds, sysbench.opt.time + 1)
   local left = until_s - now()
   while left > 0 do
      local whole = floor(left)
      clock[0].seconds, clock[0].nanoseconds = whole, floor((left - whole) * 1e9)
      ffi.C.nanosleep(clock, nil)
      left = until_s - now()
   end
end

-- The wrapped script -------------------------------------------------------------------------------------

local bundled_event, bundled_done = event, thread_done
local started
local unfinished = false   -- whether the last call of event() ended with an error
local parts = {}           -- kind -> seconds of this event, with all attempts
local part, part_began     -- kind of the part that runs now; nil: none

local function end_part()
   if part then
      parts[part] = (parts[part] or 0) + now() - part_began
      part = nil
   end
end

if os.getenv("DBBENCH_PARTS") == "1" then
   local READS, WRITES, COMMITS = 1, 2, 3
   local functions = {
      execute_point_selects = READS, execute_simple_ranges = READS, execute_sum_ranges = READS,
      execute_order_ranges = READS, execute_distinct_ranges = READS,
      execute_index_updates = WRITES, execute_non_index_updates = WRITES, execute_delete_inserts = WRITES,
      commit = COMMITS,
   }
   for name, kind in pairs(functions) do
      local bundled = _G[name]
      _G[name] = bundled and function()
         part, part_began = kind, now()
         bundled()
         end_part()
      end
   end
end

function event(thread)
   if dbbench_pause and not unfinished then
      wait(dbbench_pause())
   end
   local called = now()
   if unfinished then
      end_part()
      turn_to(called)
      errors = errors + 1
   else
      started = called
      parts = {}
   end
   unfinished = true
   local stop = bundled_event(thread)
   unfinished = false
   if stop then
      return stop   -- the script ends the run; sysbench does not count this event
   end
   local ended = now()
   local latency_us = (ended - started) * 1e6
   turn_to(ended)
   add(counts, latency_us)
   if latency_us > longest then longest = latency_us end
   if dbbench_kind then
      add_of_kind(dbbench_kind, latency_us)
   end
   for kind, seconds in pairs(parts) do
      add_of_kind(kind, seconds * 1e6)
   end
end

function thread_done(thread)
   write_second()
   file:close()
   if bundled_done then
      bundled_done(thread)
   end
end

-- Latencies with the wait in the queue -------------------------------------------------------------------
--
-- With --rate an event waits in sysbench's queue before event() is called, and only sysbench's histogram includes this
-- time. Before its reporting thread calls the hook below, it moves the counts of the last interval into an array of
-- that histogram. They are written to DBBENCH_OUT/queue, one line per bucket: "moment bucket count". Bucket i of
-- sysbench is around e^(i * ln(1e8) / 1023) us and 1.8 % wide.

if os.getenv("DBBENCH_QUEUE") == "1" then
   -- The struct of src/sb_histogram.h in sysbench 1.0, because there is no public interface to these numbers.
   ffi.cdef[[
   typedef struct {
      uint64_t *whole_run; uint64_t whole_run_events; uint64_t *interval; uint64_t **slots;
      size_t size; double least_ms; double most_ms;
   } dbbench_queue;
   extern dbbench_queue sb_latency_histogram;
   ]]
   local file

   function sysbench.hooks.report_intermediate(stat)
      sysbench.report_default(stat)
      local queue = ffi.C.sb_latency_histogram
      assert(queue.size == 1024 and queue.least_ms == 1e-3 and queue.most_ms == 1e5,
             "the histogram of this sysbench is not the one of sysbench 1.0")
      file = file or opened("queue")
      local moment = now()
      for bucket = 0, 1023 do
         local events = tonumber(queue.interval[bucket])
         if events > 0 then
            file:write(string.format("%.3f %d %d\n", moment, bucket, events))
         end
      end
      file:flush()
   end
end
