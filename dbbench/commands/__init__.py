"""One module per command: parse the arguments, make one call, print the result.

Each module has a function `command`; the table of commands is in `cli.py`.
"""
