"""Starts `dbbench` as a fork of a process that has imported it: most of the CPU time of a short command is imports.

`Command` is used by tests. The file itself is the program of that process, one for each process of tests.
"""

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Final

REQUEST_BYTES: Final = 2**17  # the longest request: the environment and the words of a command


class Preloaded:
    """The process that has imported dbbench; it ends with this one."""

    def __init__(self) -> None:
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-P", __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                             cwd="/", pass_fds=(theirs.fileno(),))  # fmt: skip


class Command:
    """A command of `dbbench` that runs, like `subprocess.Popen` with two pipes."""

    def __init__(self, preloaded: Preloaded, words: tuple[str, ...], cwd: Path, env: dict[str, str]) -> None:
        pipes = [os.pipe() for _ in range(3)]
        os.umask(umask := os.umask(0))
        request = json.dumps({"words": words, "cwd": str(cwd), "env": env, "umask": umask}).encode()
        socket.send_fds(preloaded.requests, [request], [written for _, written in pipes])
        for _, written in pipes:
            os.close(written)
        self.stdout: IO[str] = os.fdopen(pipes[0][0])
        self.stderr: IO[str] = os.fdopen(pipes[1][0])
        self._news = os.fdopen(pipes[2][0], "rb", buffering=0)  # its pid, later its exit status, one line each
        self.pid = int(self._news.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status if it has ended, negative after a signal."""
        if self.returncode is None and select.select([self._news], [], [], 0)[0]:
            self.returncode = int(self._news.readline())
            self._news.close()
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return the exit status. Raises TimeoutExpired."""
        if self.returncode is None and not select.select([self._news], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(["dbbench"], timeout)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Return what it writes until it ends; it is killed after the timeout."""
        errors: list[str] = []
        with self.stdout, self.stderr:
            reader = threading.Thread(target=lambda: errors.append(self.stderr.read()))
            killer = threading.Timer(timeout, self.kill)
            for thread in (reader, killer):
                thread.start()
            output = self.stdout.read()
            reader.join()
            killer.cancel()
        self.wait(timeout)
        return output, *errors


def serve(requests: socket.socket) -> None:
    """Fork for each request, and return in the process that is to run its command."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that the kernel forgets the processes that wait for a command
    while True:
        request, fds, _flags, _address = socket.recv_fds(requests, REQUEST_BYTES, 3)
        if not request:
            sys.exit()  # the tests have ended
        if os.fork() == 0:
            break
        for fd in fds:
            os.close(fd)
    requests.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, news = fds
    if child := os.fork():
        for fd in streams:
            os.close(fd)
        os.write(news, f"{child}\n".encode())
        os.write(news, f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n".encode())
        os._exit(0)
    os.close(news)
    for fd, target in zip(streams, (1, 2), strict=True):
        os.dup2(fd, target)
        os.close(fd)
    become(**json.loads(request))


def become(words: list[str], cwd: str, env: dict[str, str], umask: int) -> None:
    """Take over what a program gets from the one that starts it."""
    os.chdir(cwd)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[1:] = words


def preload() -> None:
    """Import dbbench, and make what commands make at their first use of it."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in dbbench/__main__.py
    import dbbench
    from dbbench import model

    for module in pkgutil.walk_packages(dbbench.__path__, "dbbench."):
        with contextlib.suppress(ImportError):  # of an optional library
            importlib.import_module(module.name)
    importlib.import_module("plotly.graph_objs").Figure()
    for noun in (model.Arm, model.CeilingFacts, model.Dataset, model.DeviceSpec, model.EngineSpec, model.FsSetup,
                 model.Plan, model.Run, model.Trial, model.Workload, model.WorkloadSpec):  # fmt: skip
        model.base.adapter(noun)
    from dbbench.report.page.html import templates

    for name in templates().list_templates(extensions=["j2"]):
        templates().get_template(name)
    gc.freeze()  # a collection in a command would copy the memory of all that


if __name__ == "__main__":
    preload()
    serve(socket.socket(fileno=int(sys.argv[1])))
    status = importlib.import_module("dbbench.__main__").main()
    sys.stdout.flush()
    os._exit(status)  # removing all modules would take as long as importing them
