"""Dumps as text."""

from typing import Final

# One of pg_dump, whose texts and names look like commands, strings and ends of rows.
DUMP: Final = rb"""--
-- PostgreSQL database dump
--

\restrict abc

SET statement_timeout = 0;
SELECT pg_catalog.set_config('search_path', '', false);
CREATE FUNCTION public.f() RETURNS text LANGUAGE sql AS $_$
  SELECT 'a;b' || E'\'\\' || "x" -- \! not a command
  /* nested /* \! */ ; */
  COPY public.t FROM stdin;
$_$;
CREATE TABLE public."t;""(" (
    id integer,
    "a$b$" text
);
ALTER TABLE public."t;""(" OWNER TO somebody;
COPY public."t;""(" (id, "a(b") FROM stdin;
1	\\! x
2	;'"$$
\.
COMMENT ON TABLE public."t;""(" IS 'two
-- PostgreSQL database dump complete
lines';
--
-- PostgreSQL database dump complete
--

\unrestrict abc

"""
