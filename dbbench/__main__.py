"""The entry point of `dbbench` and `python -m dbbench`."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> int:
    """Run the command line and return its exit status."""
    ctrl_c = signal.getsignal(signal.SIGINT)
    if ctrl_c is signal.default_int_handler:  # a background job of a script ignores it
        # end at once during the imports, without a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # imports make 100 000 objects, which stay; by default they would be examined very often
    gc.set_threshold(50_000)
    # numpy's library would reserve memory for a thread per CPU
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from dbbench.cli import run

    signal.signal(signal.SIGINT, ctrl_c)
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
