"""One module per command: parse the arguments, make one call, print the result. `cli.py` lists
their `command`s.
"""
