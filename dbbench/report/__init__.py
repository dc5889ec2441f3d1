"""Everything that people and programs read: the page, tables, exports and progress."""
