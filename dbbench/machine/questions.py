"""Ask filesystems of others. One of a network or of FUSE may never answer, and a process that waits
for it cannot be killed. It would keep a pid namespace, and so a trial, from ending: within one, a
helper asks that has started outside of it, and its processes may stay behind.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from dbbench import process
from dbbench.machine import libc
from dbbench.model import Json

Ask = Callable[[str], object]

_CHUNK: Final = 65536
_REQUEST_BYTES: Final = 2**18
_helper: socket.socket | None = None
_asleep: dict[str, int] = {}  # what did not answer -> the process that still waits for it


def prepare() -> None:
    """Start the helper of this process and of its children, with which it ends; not a second one."""
    global _helper
    if _helper is not None:
        return
    ours, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        _serve(requests)
    requests.close()
    _helper = ours


def ask_each(
    ask: Ask,
    names: Sequence[str],
    within_s: float,
) -> Json:
    """Call `ask` for each name in another process; return its answers (JSON) by name. A name is left
    out if there is no answer within `allowed_s(within_s)`, and as long as the process that asked
    still waits. Raises OSError if the helper was killed.
    """
    if _helper is None or not names:
        return _ask_each(ask, names, within_s)
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as pipe:
        try:
            socket.send_fds(_helper, [pickle.dumps((ask, names, within_s))], [writer])
        finally:
            os.close(writer)
        answers = pipe.read()
    if not answers:
        raise OSError("the process that asks filesystems was killed")
    return dict(json.loads(answers))


def _serve(requests: socket.socket) -> NoReturn:
    """Run the helper: answer requests until no process is left that could send one."""
    try:
        # Neither a terminal, a directory, nor what others wait for the end of.
        os.setsid()
        os.chdir("/")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        _close_except(requests.fileno())
        while True:
            request, fds, _flags, _address = socket.recv_fds(requests, _REQUEST_BYTES, 1)
            if not request:
                break
            answers = json.dumps(_ask_each(*pickle.loads(request)))
            # the one who asked may have been killed
            try:
                with os.fdopen(fds[0], "w") as pipe:
                    pipe.write(answers)
            except BrokenPipeError:
                continue
    finally:
        os._exit(0)


def _ask_each(
    ask: Ask,
    names: Sequence[str],
    within_s: float,
) -> Json:
    for name, waiting in list(_asleep.items()):
        if os.waitpid(waiting, os.WNOHANG) != (0, 0):
            del _asleep[name]
    answers = Json()
    asked = [name for name in names if name not in _asleep]
    while asked:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _answer(ask, asked, writer)
        os.close(writer)
        lines = _lines(reader, within_s)
        answers |= zip(asked, map(json.loads, lines), strict=False)
        asked = asked[len(lines) :]
        if asked:
            # The other names are asked without this one.
            _asleep[asked.pop(0)] = child
        else:
            os.waitpid(child, 0)
    return answers


def _lines(reader: int, within_s: float) -> list[bytes]:
    """Return the lines that arrive until the other side has closed the pipe, or writes none in time."""
    text = b""
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        began = time.monotonic()
        while not process.overdue(began, within_s):
            readable, _, _ = select.select([pipe], [], [], 0.05)
            if not readable:
                continue
            chunk = pipe.read(_CHUNK)
            if not chunk:
                break
            text += chunk
            began = time.monotonic()
    return text.split(b"\n")[:-1]


def _answer(ask: Ask, names: Sequence[str], writer: int) -> NoReturn:
    """Write a line for each name. If it waits and can be killed, it ends with its parent."""
    try:
        _close_except(writer)
        libc.end_with_parent()
        for name in names:
            line = json.dumps(ask(name))
            os.write(writer, line.encode() + b"\n")
    finally:
        os._exit(0)


def _close_except(fd: int) -> None:
    """Hold nothing of the parent's open whose end others wait for."""
    os.closerange(0, fd)
    os.closerange(fd + 1, os.sysconf("SC_OPEN_MAX"))
