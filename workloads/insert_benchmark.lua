-- One event: a query that reads at most ten entries of one of the three secondary indexes, from a random place on, and
-- nothing else. dbbench/drivers/insert.py makes the table and inserts into it meanwhile.

sysbench.cmdline.options = {
   customers = {"Customers in the table", 100000},
   shops = {"Shops in the table", 1000},
   prices = {"Prices in the table", 1000000},
}

local uniform = sysbench.rand.uniform
local con

local queries = {
   function(options)
      return "SELECT price, customer FROM purchases WHERE price >= %d ORDER BY price, customer LIMIT 10",
         uniform(1, options.prices)
   end,
   function(options)
      return "SELECT price, customer FROM purchases WHERE shop = %d AND price >= %d ORDER BY price, customer LIMIT 10",
         uniform(1, options.shops), uniform(1, options.prices)
   end,
   function(options)
      return "SELECT customer, price FROM purchases WHERE customer >= %d ORDER BY customer, price LIMIT 10",
         uniform(1, options.customers)
   end,
}

function thread_init()
   con = sysbench.sql.driver():connect()
end

function thread_done()
   con:disconnect()
end

function event()
   con:query(string.format(queries[uniform(1, #queries)](sysbench.opt)))
end
