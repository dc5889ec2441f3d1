"""The entry point of `dbbench` and `python -m dbbench`."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


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
    sys.unraisablehook = _interrupt_again
    from dbbench.cli import run

    try:
        signal.signal(signal.SIGINT, ctrl_c)
        return run(sys.argv[1:])
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        signal.signal(signal.SIGINT, outside)


def _interrupt_again(dropped: UnraisableHookArgs) -> None:
    """Repeat a Ctrl-C that came within a callback, where Python prints the exception and drops it."""
    if dropped.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(dropped)
        return
    # After the callback, because here it would be dropped again.
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.01)


if __name__ == "__main__":
    sys.exit(main())
