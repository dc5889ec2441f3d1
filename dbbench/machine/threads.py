"""Start threads: no other module does. An exception in a thread is kept and raised in the thread
that waits.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Final, ParamSpec

from dbbench.errors import DbbenchError, HelperDied

P = ParamSpec("P")
_dead: Final[list[Helper]] = []  # helpers whose errors were neither read nor raised yet


class Helper:
    """A daemon thread that runs `work` in a copy of the caller's context, so that the trial records
    its programs.
    """

    def __init__(
        self, name: str, work: Callable[P, object], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        self.name = name
        self._error: BaseException | None = None

        def keep_error() -> None:
            try:
                work(*args, **kwargs)
            except BaseException as error:
                self._error = error
                _dead.append(self)

        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run,
            args=(keep_error,),
            name=name,
            daemon=True,
        )

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait at most `timeout_s` for the end of the work, if it was started. Raises nothing; see
        `check`.
        """
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def error(self) -> BaseException | None:
        if self in _dead:
            _dead.remove(self)
        return self._error

    def check(self) -> None:
        """Raise the exception that ended the work: an error of dbbench as it is, any other as
        HelperDied.
        """
        error = self.error()
        if isinstance(error, DbbenchError):
            raise error
        if error is not None:
            raise _death(self.name, error)


@contextlib.contextmanager
def beside(
    name: str,
    work: Callable[[threading.Event], object],
    limit_s: float | None = None,
) -> Iterator[Helper]:
    """Run `work(ended)` in a thread while the block runs. At its end the event is set and the work
    is awaited for at most `limit_s`; its exception is raised unless the block itself raises one.
    """
    ended = threading.Event()
    helper = Helper(name, work, ended)
    helper.start()
    try:
        yield helper
    finally:
        ended.set()
        helper.join(limit_s)
    helper.check()


@contextlib.contextmanager
def check_all() -> Iterator[None]:
    """Raise at the end the exception of a thread not checked or started by a library, unless the
    block raises one.
    """
    _dead.clear()
    of_libraries = list[DbbenchError]()
    before = threading.excepthook

    def note(args: threading.ExceptHookArgs) -> None:
        before(args)  # prints the traceback
        name = args.thread.name if args.thread is not None else "unknown"
        of_libraries.append(_death(name, args.exc_value))

    # Threads that a library starts report here.
    threading.excepthook = note
    try:
        yield
    finally:
        threading.excepthook = before
    # A thread of dbbench itself is the better explanation.
    while _dead:
        _dead[0].check()
    for error in of_libraries:
        raise error


def _death(name: str, error: BaseException | None) -> DbbenchError:
    died = HelperDied(f'the thread "{name}" ended: {type(error).__name__}: {error}')
    died.__cause__ = error
    return died
