"""One module per command: its `command` parses arguments, makes one call and prints the result. `cli.py` lists them."""
