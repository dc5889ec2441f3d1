-- step build; on postgres; each table
CREATE INDEX {table}_by_c ON {table} (c);
-- step build; on mariadb mysql; each table
ALTER TABLE {table} ADD INDEX {table}_by_c (c);
