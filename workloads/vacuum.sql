-- step update; each table; untimed
UPDATE {table} SET k = k + 1 WHERE id % {every} = 0;
-- step vacuum; on postgres; each table
VACUUM {table};
-- step optimize; on mariadb mysql; each table
OPTIMIZE TABLE {table};
