-- TPC-C-like transactions for sysbench, written from the TPC-C specification, revision 5.11; clauses are named.
-- Tables: the dataset kind "tpcc". The transactions themselves are in tpcc_transactions.lua beside this file.
--
-- As the specification has it: five transactions of one mix, NURand, 1 % of new orders rolled back, 1 % of order lines
-- and 15 % of payments from another warehouse, 60 % of customers by last name, keying and think times where asked.
-- Other than there: no terminals and menus; delivery is not deferred; new order 45 % and payment 43 % drawn at random,
-- not dealt from a deck; without think times every transaction draws its warehouse, so that few sessions reach all.

sysbench.cmdline.options = {
   warehouses = {"Warehouses of the dataset", 1},
   districts = {"Districts of a warehouse", 10},
   customers = {"Customers of a district", 3000},
   items = {"Items, and rows of stock of a warehouse", 100000},
   think_times = {"Keying and think times of the specification", false},
}

local transactions = dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "tpcc_transactions.lua")
local uniform = sysbench.rand.uniform
local con, options, own_warehouse
local postgres = false

-- Drawing what a transaction is about -------------------------------------------------------------------

-- NURand, 2.1.6. C is constant for a run: of last names 85 away from the 157 of the first population (2.1.6.1).
local C_LAST, C_CUSTOMER, C_ITEM = 242, 259, 7911

local function non_uniform(a, c, least, most)
   return (bit.bor(uniform(0, a), uniform(least, most)) + c) % (most - least + 1) + least
end

local SYLLABLES = {[0] = "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"}

local function last_name()
   local number = non_uniform(255, C_LAST, 0, math.min(1000, options.customers) - 1)
   return SYLLABLES[math.floor(number / 100)] .. SYLLABLES[math.floor(number / 10) % 10] .. SYLLABLES[number % 10]
end

-- A customer: by number, or in `by_name` per cent by last name.
local function customer(by_name)
   if uniform(1, 100) <= by_name then
      return {name = last_name()}
   end
   return {id = non_uniform(1023, C_CUSTOMER, 1, options.customers)}
end

local function warehouse()
   return own_warehouse or uniform(1, options.warehouses)
end

local function another(than)
   local other = uniform(1, options.warehouses - 1)
   return other >= than and other + 1 or other
end

local function district()
   return uniform(1, options.districts)
end

local draw = {}

function draw.new_order()   -- 2.4.1
   local w, lines = warehouse(), {}
   for number = 1, uniform(5, 15) do
      local remote = options.warehouses > 1 and uniform(1, 100) == 1
      lines[number] = {
         item = non_uniform(8191, C_ITEM, 1, options.items),
         supply = remote and another(w) or w,
         quantity = uniform(1, 10),
      }
   end
   -- Rows of stock are locked in one order, or sessions would wait for each other in a circle.
   table.sort(lines, function(a, b)
      return a.supply < b.supply or (a.supply == b.supply and a.item < b.item)
   end)
   if uniform(1, 100) == 1 then
      lines[#lines].item = options.items + 1   -- unused: the order is rolled back (2.4.1.4)
   end
   return {w = w, d = district(), customer = customer(0), lines = lines}
end

function draw.payment()   -- 2.5.1
   local w, d = warehouse(), district()
   local paid = {w = w, d = d, c_w = w, c_d = d, customer = customer(60), amount = uniform(100, 500000) / 100}
   if options.warehouses > 1 and uniform(1, 100) <= 15 then
      paid.c_w, paid.c_d = another(w), district()
   end
   return paid
end

function draw.order_status()   -- 2.6.1
   return {w = warehouse(), d = district(), customer = customer(60)}
end

function draw.delivery()   -- 2.7.1
   return {w = warehouse(), carrier = uniform(1, 10)}
end

function draw.stock_level()   -- 2.8.1
   return {w = warehouse(), d = district(), threshold = uniform(10, 20)}
end

-- The mix (5.2.3), keying times and mean think times in seconds (5.2.5.7). The order is that of the counts that
-- dbbench_events.lua writes: the first is what tpmC counts.
local MIX = {
   {name = "new_order", share = 45, keying = 18, thinking = 12},
   {name = "payment", share = 43, keying = 3, thinking = 12},
   {name = "order_status", share = 4, keying = 2, thinking = 10},
   {name = "delivery", share = 4, keying = 2, thinking = 5},
   {name = "stock_level", share = 4, keying = 2, thinking = 5},
}

local function chosen()
   local point = uniform(1, 100)
   for kind, one in ipairs(MIX) do
      point = point - one.share
      if point <= 0 then
         return kind
      end
   end
end

-- What sysbench calls -----------------------------------------------------------------------------------

local TERMINALS = 10   -- of a warehouse, 4.2.1: one a district
local planned          -- what is to be done; kept until it is done, so that a deadlock does not change the mix
local inside = false   -- a transaction was begun and not ended: an error has left it

function thread_init()
   local driver = sysbench.sql.driver()
   con, options = driver:connect(), sysbench.opt
   postgres = driver:name() == "pgsql"
   transactions.prepare(con, options)
   if options.think_times then
      own_warehouse = math.floor(sysbench.tid / TERMINALS) % options.warehouses + 1
   end
end

local function plan_next()
   local kind = chosen()
   planned = {kind = kind, about = draw[MIX[kind].name]()}
end

-- Seconds to wait before the next event; dbbench_events.lua waits, and its clock begins afterwards. The think time
-- that follows a transaction is waited for before the next: negative exponential, at most ten times its mean (5.2.5.4).
local thought = 0

function dbbench_pause()
   if not options.think_times then
      return 0
   end
   plan_next()
   local mean = MIX[planned.kind].thinking
   local pause = thought + MIX[planned.kind].keying
   thought = math.min(10 * mean, -math.log(1 - sysbench.rand.uniform_double()) * mean)
   return pause
end

function event()
   if inside and not postgres then
      con:query("ROLLBACK")   -- a lock that was waited for too long ends a statement only; PostgreSQL ended all
   end
   if not planned then
      plan_next()
   end
   inside = true
   con:query("BEGIN")
   transactions[MIX[planned.kind].name](planned.about)
   inside = false
   dbbench_kind = planned.kind
   planned = nil
end

function thread_done()
   con:disconnect()
end
