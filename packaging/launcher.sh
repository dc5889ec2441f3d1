#!/bin/sh
# The command `dbbench` of the .deb, of a bundle and of `make install`, beside the python3 of its environment. Ctrl-C
# waits until dbbench can handle it: Python itself prints a traceback if it is interrupted while it starts.
self=$(readlink -f "$0")
# -P: a file of the current directory is never imported.
set -- "${self%/*}/python3" -sP -m dbbench "$@"
# Not every env has this option.
if /usr/bin/env --block-signal=INT true 2>/dev/null; then
	set -- /usr/bin/env --block-signal=INT "$@"
fi
exec "$@"
