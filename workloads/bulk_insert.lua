-- One event: one INSERT of many rows into the thread's own table, committed at once.
--
-- The rows are those of sysbench's own tables (an id, a number, two texts of digits), with an index on the number.

sysbench.cmdline.options = {
   rows = { "Rows of an INSERT", 1000 },
}

local C_FORMAT = "###########-###########-###########-###########-###########-" ..
   "###########-###########-###########-###########-###########"
local PAD_FORMAT = "###########-###########-###########-###########-###########"

local last = 0

function thread_init()
   drv = sysbench.sql.driver()
   con = drv:connect()
   name = "bulk" .. sysbench.tid + 1
   con:query("CREATE TABLE IF NOT EXISTS " .. name .. " (id INTEGER NOT NULL PRIMARY KEY, k INTEGER NOT NULL, " ..
             "c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL)")
   con:query("CREATE INDEX " .. name .. "_k ON " .. name .. " (k)")
end

function thread_done()
   con:disconnect()
end

function event()
   local rows = {}
   for row = 1, sysbench.opt.rows do
      rows[row] = string.format("(%d,%d,'%s','%s')", last + row, sysbench.rand.uniform(1, 1000000),
                                sysbench.rand.string(C_FORMAT), sysbench.rand.string(PAD_FORMAT))
   end
   con:query("INSERT INTO " .. name .. " (id, k, c, pad) VALUES " .. table.concat(rows, ","))
   last = last + sysbench.opt.rows
end
