-- step create; on postgres; each table; untimed
CREATE TABLE {table} (id bigint NOT NULL PRIMARY KEY, k integer NOT NULL, body varchar(400) NOT NULL);
-- step create; on mariadb mysql; each table; untimed
CREATE TABLE {table} (id bigint NOT NULL PRIMARY KEY, k integer NOT NULL, body varchar(400) NOT NULL) ENGINE=InnoDB;
-- step load; on postgres; each table
COPY {table} FROM STDIN;
-- step load; on mariadb mysql; each table
LOAD DATA LOCAL INFILE '{file}' INTO TABLE {table};
