-- The tables of TPC-C (revision 5.11, 1.3) and its consistency conditions (3.3.2.1 to 3.3.2.12).
--
-- A table has its primary key in parentheses; {time} is the engine's type with date and time. Foreign keys are not
-- declared: no transaction relies on them, and the conditions detect what they would.
--
-- Each query returns violations of its condition. A district has no rows in new_order if all its orders were delivered.
-- The specification states condition 11 for the initial population; its query here also counts later deliveries, each of
-- which removes a row from new_order. {delivered} is the number of orders of a district that are delivered at first.

-- table item (i_id)
i_id integer, i_im_id integer, i_name varchar(24), i_price numeric(5, 2), i_data varchar(50)

-- table warehouse (w_id)
w_id integer, w_name varchar(10), w_street_1 varchar(20), w_street_2 varchar(20), w_city varchar(20),
w_state char(2), w_zip char(9), w_tax numeric(4, 4), w_ytd numeric(12, 2)

-- table stock (s_w_id, s_i_id)
s_w_id integer, s_i_id integer, s_quantity integer, s_dist_01 char(24), s_dist_02 char(24), s_dist_03 char(24),
s_dist_04 char(24), s_dist_05 char(24), s_dist_06 char(24), s_dist_07 char(24), s_dist_08 char(24),
s_dist_09 char(24), s_dist_10 char(24), s_ytd numeric(8, 0), s_order_cnt integer, s_remote_cnt integer,
s_data varchar(50)

-- table district (d_w_id, d_id)
d_w_id integer, d_id integer, d_name varchar(10), d_street_1 varchar(20), d_street_2 varchar(20),
d_city varchar(20), d_state char(2), d_zip char(9), d_tax numeric(4, 4), d_ytd numeric(12, 2), d_next_o_id integer

-- table customer (c_w_id, c_d_id, c_id)
c_w_id integer, c_d_id integer, c_id integer, c_first varchar(16), c_middle char(2), c_last varchar(16),
c_street_1 varchar(20), c_street_2 varchar(20), c_city varchar(20), c_state char(2), c_zip char(9),
c_phone char(16), c_since {time}, c_credit char(2), c_credit_lim numeric(12, 2), c_discount numeric(4, 4),
c_balance numeric(12, 2), c_ytd_payment numeric(12, 2), c_payment_cnt integer, c_delivery_cnt integer,
c_data varchar(500)

-- table history ()
h_c_id integer, h_c_d_id integer, h_c_w_id integer, h_d_id integer, h_w_id integer, h_date {time},
h_amount numeric(6, 2), h_data varchar(24)

-- table orders (o_w_id, o_d_id, o_id)
o_w_id integer, o_d_id integer, o_id integer, o_c_id integer, o_entry_d {time}, o_carrier_id integer NULL,
o_ol_cnt integer, o_all_local integer

-- table new_order (no_w_id, no_d_id, no_o_id)
no_w_id integer, no_d_id integer, no_o_id integer

-- table order_line (ol_w_id, ol_d_id, ol_o_id, ol_number)
ol_w_id integer, ol_d_id integer, ol_o_id integer, ol_number integer, ol_i_id integer, ol_supply_w_id integer,
ol_delivery_d {time} NULL, ol_quantity integer, ol_amount numeric(6, 2), ol_dist_info char(24)

-- index customer_name
CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first)

-- index orders_customer
CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)

-- condition 1: w_ytd is the sum of its districts' d_ytd
SELECT w_id, w_ytd, ytd FROM warehouse
JOIN (SELECT d_w_id, sum(d_ytd) AS ytd FROM district GROUP BY d_w_id) AS t ON d_w_id = w_id
WHERE w_ytd <> ytd

-- condition 2: d_next_o_id - 1 is the last order and the last new order
SELECT d_w_id, d_id, d_next_o_id - 1, last_o, last_no FROM district
LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS last_o FROM orders GROUP BY o_w_id, o_d_id) AS o ON o_w_id = d_w_id
  AND o_d_id = d_id
LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS last_no FROM new_order GROUP BY no_w_id, no_d_id) AS n ON
  no_w_id = d_w_id AND no_d_id = d_id
WHERE last_o IS NULL OR d_next_o_id - 1 <> last_o OR d_next_o_id - 1 <> last_no

-- condition 3: new orders of a district have no gaps
SELECT no_w_id, no_d_id, max(no_o_id) - min(no_o_id) + 1, count(*) FROM new_order
GROUP BY no_w_id, no_d_id
HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)

-- condition 4: o_ol_cnt of a district's orders adds up to its number of order lines
SELECT o_w_id, o_d_id, ordered, present
FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS ordered FROM orders GROUP BY o_w_id, o_d_id) AS o
LEFT JOIN (SELECT ol_w_id, ol_d_id, count(*) AS present FROM order_line GROUP BY ol_w_id, ol_d_id) AS l ON ol_w_id =
  o_w_id AND ol_d_id = o_d_id
WHERE present IS NULL OR ordered <> present

-- condition 5: o_carrier_id of an order is NULL if and only if the order is in new_order
SELECT o_w_id, o_d_id, o_id, o_carrier_id FROM orders
LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)

-- condition 6: o_ol_cnt is the number of the order's lines
SELECT o_w_id, o_d_id, o_id, o_ol_cnt, count(ol_o_id) FROM orders
LEFT JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
GROUP BY o_w_id, o_d_id, o_id, o_ol_cnt
HAVING count(ol_o_id) <> o_ol_cnt

-- condition 7: ol_delivery_d of a line is NULL if and only if o_carrier_id of its order is
SELECT o_w_id, o_d_id, o_id, ol_number FROM orders
JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)

-- condition 8: w_ytd is the sum of the warehouse's payments
SELECT w_id, w_ytd, paid FROM warehouse
LEFT JOIN (SELECT h_w_id, sum(h_amount) AS paid FROM history GROUP BY h_w_id) AS h ON h_w_id = w_id
WHERE paid IS NULL OR w_ytd <> paid

-- condition 9: d_ytd is the sum of the district's payments
SELECT d_w_id, d_id, d_ytd, paid FROM district
LEFT JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM history GROUP BY h_w_id, h_d_id) AS h ON h_w_id =
  d_w_id AND h_d_id = d_id
WHERE paid IS NULL OR d_ytd <> paid

-- condition 10: c_balance is the sum of the customer's delivered lines minus the sum of the payments
SELECT c_w_id, c_d_id, c_id, c_balance, delivered, paid FROM customer
LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS delivered FROM orders
JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) AS l ON o_w_id = c_w_id AND o_d_id = c_d_id AND
  o_c_id = c_id
LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history GROUP BY h_c_w_id, h_c_d_id,
  h_c_id) AS h ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
WHERE c_balance <> coalesce(delivered, 0) - coalesce(paid, 0)

-- condition 11: orders that are not in new_order are those of the first population and the later deliveries
SELECT c_w_id, c_d_id, made, coalesce(waiting, 0), delivered
FROM (SELECT c_w_id, c_d_id, sum(c_delivery_cnt) AS delivered FROM customer GROUP BY c_w_id, c_d_id) AS c
LEFT JOIN (SELECT o_w_id, o_d_id, count(*) AS made FROM orders GROUP BY o_w_id, o_d_id) AS o ON o_w_id = c_w_id AND
  o_d_id = c_d_id
LEFT JOIN (SELECT no_w_id, no_d_id, count(*) AS waiting FROM new_order GROUP BY no_w_id, no_d_id) AS n ON no_w_id =
  c_w_id AND no_d_id = c_d_id
WHERE made IS NULL OR made - coalesce(waiting, 0) <> {delivered} + delivered

-- condition 12: c_balance plus c_ytd_payment is the sum of the customer's delivered lines
SELECT c_w_id, c_d_id, c_id, c_balance, c_ytd_payment, delivered FROM customer
LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS delivered FROM orders
JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) AS l ON o_w_id = c_w_id AND o_d_id = c_d_id AND
  o_c_id = c_id
WHERE c_balance + c_ytd_payment <> coalesce(delivered, 0)
