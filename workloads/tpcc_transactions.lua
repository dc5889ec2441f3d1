-- The five transactions of TPC-C (clauses 2.4 to 2.8), each from after its BEGIN to its COMMIT or ROLLBACK. Statements
-- are sent as text: the drivers of sysbench 1.0 hand out no rows of prepared ones.

local format = string.format
local con, options
local transactions = {}

function transactions.prepare(connection, of)
   con, options = connection, of
end

local function run(statement, ...)
   return con:query(format(statement, ...))
end

-- The first row, or nil.
local function row(statement, ...)
   local found = run(statement, ...)
   return found.nrows > 0 and found:fetch_row() or nil
end

local function rows(statement, ...)
   local found, all = run(statement, ...), {}
   for number = 1, found.nrows do
      all[number] = found:fetch_row()
   end
   return all
end

-- The customer's number; of those with one last name the one in the middle by first name (2.5.2.2).
local function number_of(customer, w, d)
   if customer.id then
      return customer.id
   end
   local same = rows("SELECT c_id FROM customer WHERE c_w_id = %d AND c_d_id = %d AND c_last = '%s' ORDER BY c_first",
                     w, d, customer.name)
   return tonumber(same[math.ceil(#same / 2)][1])
end

-- Take a line's quantity out of the stock (2.4.2.2); the line as it is to be written, or nil: no such item.
local function taken(order, line)
   local item = row("SELECT i_price, i_name, i_data FROM item WHERE i_id = %d", line.item)
   if not item then
      return nil
   end
   local stock = row("SELECT s_quantity, s_dist_%02d, s_data FROM stock WHERE s_w_id = %d AND s_i_id = %d FOR UPDATE",
                     (order.d - 1) % 10 + 1, line.supply, line.item)
   local left = tonumber(stock[1]) - line.quantity
   run("UPDATE stock SET s_quantity = %d, s_ytd = s_ytd + %d, s_order_cnt = s_order_cnt + 1, "
          .. "s_remote_cnt = s_remote_cnt + %d WHERE s_w_id = %d AND s_i_id = %d",
       left >= 10 and left or left + 91, line.quantity, line.supply ~= order.w and 1 or 0, line.supply, line.item)
   return format("%d, %d, %%.2f, '%s'", line.item, line.supply, stock[2]), line.quantity * tonumber(item[1])
end

function transactions.new_order(order)
   local w, d, c = order.w, order.d, order.customer.id
   row("SELECT c_discount, c_last, c_credit, w_tax FROM customer JOIN warehouse ON w_id = c_w_id "
          .. "WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d", w, d, c)
   local o = tonumber(row("SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = %d AND d_id = %d FOR UPDATE", w, d)[1])
   run("UPDATE district SET d_next_o_id = %d WHERE d_w_id = %d AND d_id = %d", o + 1, w, d)
   local all_local = 1
   for _, line in ipairs(order.lines) do
      if line.supply ~= w then all_local = 0 end
   end
   run("INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local) "
          .. "VALUES (%d, %d, %d, %d, CURRENT_TIMESTAMP, NULL, %d, %d)", w, d, o, c, #order.lines, all_local)
   run("INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (%d, %d, %d)", w, d, o)
   local written = {}
   for number, line in ipairs(order.lines) do
      local text, amount = taken(order, line)
      if not text then
         run("ROLLBACK")
         return
      end
      written[number] = format("(%d, %d, %d, %d, NULL, %d, ", w, d, o, number, line.quantity) .. format(text, amount) .. ")"
   end
   con:query("INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_delivery_d, ol_quantity, ol_i_id, "
                .. "ol_supply_w_id, ol_amount, ol_dist_info) VALUES " .. table.concat(written, ", "))
   run("COMMIT")
end

function transactions.payment(paid)
   local w, d, amount = paid.w, paid.d, paid.amount
   run("UPDATE warehouse SET w_ytd = w_ytd + %.2f WHERE w_id = %d", amount, w)
   local of = row("SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = %d", w)
   run("UPDATE district SET d_ytd = d_ytd + %.2f WHERE d_w_id = %d AND d_id = %d", amount, w, d)
   local at = row("SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district "
                     .. "WHERE d_w_id = %d AND d_id = %d", w, d)
   local c = number_of(paid.customer, paid.c_w, paid.c_d)
   local whose = format("WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d", paid.c_w, paid.c_d, c)
   local customer = row("SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, "
                           .. "c_since, c_credit_lim, c_discount, c_balance, c_credit FROM customer %s FOR UPDATE", whose)
   local noted = ""
   if customer[14] == "BC" then   -- bad credit: what was paid is noted in front of c_data (2.5.2.2)
      noted = format(", c_data = left(concat('%d %d %d %d %d %.2f ', c_data), 500)", c, paid.c_d, paid.c_w, d, w, amount)
   end
   run("UPDATE customer SET c_balance = c_balance - %.2f, c_ytd_payment = c_ytd_payment + %.2f, "
          .. "c_payment_cnt = c_payment_cnt + 1%s %s", amount, amount, noted, whose)
   run("INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) "
          .. "VALUES (%d, %d, %d, %d, %d, CURRENT_TIMESTAMP, %.2f, '%s    %s')",
       c, paid.c_d, paid.c_w, d, w, amount, of[1], at[1])
   run("COMMIT")
end

function transactions.order_status(asked)
   local w, d = asked.w, asked.d
   local c = number_of(asked.customer, w, d)
   row("SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d", w, d, c)
   local last = row("SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = %d AND o_d_id = %d AND o_c_id = %d "
                       .. "ORDER BY o_id DESC LIMIT 1", w, d, c)
   rows("SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line "
           .. "WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %d", w, d, tonumber(last[1]))
   run("COMMIT")
end

-- The oldest new order of each district, all ten in one transaction (2.7.4.1 allows it).
function transactions.delivery(delivered)
   local w = delivered.w
   for d = 1, options.districts do
      local oldest = row("SELECT no_o_id FROM new_order WHERE no_w_id = %d AND no_d_id = %d ORDER BY no_o_id LIMIT 1 "
                            .. "FOR UPDATE", w, d)
      if oldest then
         local o = tonumber(oldest[1])
         local which = format("ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %d", w, d, o)
         run("DELETE FROM new_order WHERE no_w_id = %d AND no_d_id = %d AND no_o_id = %d", w, d, o)
         local c = tonumber(row("SELECT o_c_id FROM orders WHERE o_w_id = %d AND o_d_id = %d AND o_id = %d FOR UPDATE",
                                w, d, o)[1])   -- locked: what InnoDB reads otherwise may be older than new_order
         run("UPDATE orders SET o_carrier_id = %d WHERE o_w_id = %d AND o_d_id = %d AND o_id = %d",
             delivered.carrier, w, d, o)
         run("UPDATE order_line SET ol_delivery_d = CURRENT_TIMESTAMP WHERE %s", which)
         local sum = tonumber(row("SELECT sum(ol_amount) FROM order_line WHERE %s", which)[1])
         run("UPDATE customer SET c_balance = c_balance + %.2f, c_delivery_cnt = c_delivery_cnt + 1 "
                .. "WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d", sum, w, d, c)
      end
   end
   run("COMMIT")
end

-- Items of the district's last 20 orders that are low in stock (2.8.2).
function transactions.stock_level(asked)
   local w, d = asked.w, asked.d
   local following = tonumber(row("SELECT d_next_o_id FROM district WHERE d_w_id = %d AND d_id = %d", w, d)[1])
   row("SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = %d AND s_i_id = ol_i_id "
          .. "WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id >= %d AND ol_o_id < %d AND s_quantity < %d",
       w, w, d, following - 20, following, asked.threshold)
   run("COMMIT")
end

return transactions
