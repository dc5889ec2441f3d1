"""One file a command: arguments in, one call, text out. Each has `command`; the table of them is in `cli.py`."""
