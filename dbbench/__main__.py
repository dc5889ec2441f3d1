"""The entry point of `dbbench` and `python -m dbbench`."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> int:
    """Run the command line and return its exit status."""
    ctrl_c = signal.getsignal(signal.SIGINT)
    # During the imports and after the command it ends the process at once, without a traceback. A
    # background job of a script ignores it.
    outside = signal.SIG_DFL if ctrl_c is signal.default_int_handler else ctrl_c
    signal.signal(signal.SIGINT, outside)
    # packaging/launcher.sh blocks it while Python starts
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    # imports make 100 000 objects, which stay; by default they would be examined very often
    gc.set_threshold(50_000)
    # numpy's library would reserve memory for a thread per CPU
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from dbbench.cli import run

    try:
        signal.signal(signal.SIGINT, ctrl_c)
        return run(sys.argv[1:])
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        signal.signal(signal.SIGINT, outside)


if __name__ == "__main__":
    sys.exit(main())
