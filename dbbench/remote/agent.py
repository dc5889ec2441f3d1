"""The program on the client's host: it starts the load generator, answers requests, and leaves
nothing behind. `ssh` sends this file's text, so that nothing has to be installed there: Python
3.7's standard library is sufficient. Requests are lines of JSON on stdin, {"do": NAME, ...};
answers are lines on stdout, {"answer": ...} or {"error": TEXT}; bytes may follow. {"output":
...} and {"ended": ...} occur between them while the load generator runs.

The outer process waits for the inner one, which works. If either is killed, the other one
removes the directory; the load generator dies with the inner one (PR_SET_PDEATHSIG, set by
setpriv). The inner one ends with stdin, when ssh ends on the other side, and after SILENCE_S
without data, when the network is interrupted.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

SILENCE_S = 60.0  # the other side sends at least a "beat" every 5 s
_LOOK_S = 0.5
_CHUNK = 1 << 16


class Agent:
    """The inner process. `folder` is private and is removed when the process ends; requests come
    from `stdin`.
    """

    def __init__(self, folder: Path, parent: int, stdin: int = 0) -> None:
        self.folder = folder
        self.parent = parent
        self.stdin = stdin
        self.heard = time.monotonic()
        self.unread = b""
        self.child: Any = None  # a Popen of bytes
        self.pipes: dict[int, str] = {}  # file descriptor -> "out" or "err"

    def serve(self) -> None:
        tell({"hello": self.facts()})
        while os.getppid() == self.parent and time.monotonic() - self.heard < SILENCE_S:
            for fd in select.select([self.stdin, *self.pipes], [], [], _LOOK_S)[0]:
                if fd != self.stdin:
                    self.pass_on(fd)
                elif not self.answer_next():
                    return

    def stop(self) -> None:
        if self.child is not None and self.child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()

    def pass_on(self, fd: int) -> None:
        """Forward what the load generator prints, and its end when it has closed both its streams."""
        output = os.read(fd, _CHUNK)
        if output:
            tell({"output": self.pipes[fd], "text": output.decode("utf-8", "replace")})
            return
        del self.pipes[fd]
        if not self.pipes:
            _, status, used = os.wait4(self.child.pid, 0)
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            self.child.returncode = code
            tell({"ended": code, "cpu_s": used.ru_utime + used.ru_stime})

    def answer_next(self) -> bool:
        """Carry out one request, or several that arrived together; return False at the end of
        stdin.
        """
        came = os.read(self.stdin, _CHUNK)
        self.unread, self.heard = self.unread + came, time.monotonic()
        while b"\n" in self.unread:
            line, _, self.unread = self.unread.partition(b"\n")
            asked = json.loads(line.decode())
            do = asked.pop("do")
            if do == "beat":
                continue
            try:
                answer = getattr(self, do)(**asked)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                tell({"error": f"{do}: {error}"})
                continue
            if do != "get":  # `get` has already sent its answer
                tell({"answer": answer})
        return bool(came)

    def facts(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "hostname": socket.gethostname(),
            "kernel": platform.release(),
            "cores": sorted(os.sched_getaffinity(0)),
        }

    def clock(self) -> dict[str, float]:
        return {"utc": time.time(), "monotonic": time.monotonic()}

    def find(self, names: list[str], patterns: list[str]) -> list[str]:
        """Return paths of programs: by patterns of paths, and by their names in PATH."""
        places = os.environ.get("PATH", "") + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        paths = [
            str(path)
            for pattern in patterns
            for path in sorted(Path("/").glob(pattern.lstrip("/")))
        ]
        return paths + [
            path for path in (shutil.which(name, path=places) for name in names) if path
        ]

    def run(self, argv: list[str], within_s: float) -> list[Any]:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=within_s,
            check=False,
        )
        return [done.returncode, done.stdout.decode("utf-8", "replace")]

    def reach(self, host: str, port: int, word: str, times: int, within_s: float) -> dict[str, Any]:
        """Connect `times` times and send the word; return the seconds of each connection, which is
        a round trip.
        """
        took = []
        for _ in range(times):
            began = time.monotonic()
            with socket.create_connection((host, port), within_s) as connection:
                took.append(time.monotonic() - began)
                connection.sendall(word.encode())
        return {"took_s": took}

    def put(self, name: str, size: int) -> str:
        """Write the following bytes to a file in the directory, readable only by this account."""
        while len(self.unread) < size:
            came = os.read(self.stdin, _CHUNK)
            if not came:
                raise OSError(f"the file {name} was not received completely")
            self.unread += came
        content = self.unread[:size]
        self.unread = self.unread[size:]
        path = self.folder / Path(name).name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        return str(path)

    def start(self, argv: list[str], env: dict[str, str], stdin: str) -> dict[str, float]:
        """Start the load generator in a new session in the directory; return the time of both
        clocks just before.
        """
        clean = {
            "PATH": os.environ.get("PATH", ""),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }
        began = self.clock()
        variables = {"HOME": str(self.folder), "DBBENCH_BEGIN": f"{began['monotonic']:.6f}"}
        self.child = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=str(self.folder),
            env={**clean, **variables, **env},
            start_new_session=True,
        )
        self.pipes = {self.child.stdout.fileno(): "out", self.child.stderr.fileno(): "err"}
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.write(stdin.encode())
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.close()
        return began

    def cpu(self) -> dict[str, Any]:
        """Return CPU seconds since boot: of all processors, and of the load generator while it
        runs.
        """
        ticks = [
            int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        ]
        tick = os.sysconf("SC_CLK_TCK")
        # without idle, iowait and steal (proc_stat(5))
        busy = sum(ticks) - ticks[3] - ticks[4] - ticks[7]
        return {"monotonic": time.monotonic(), "busy_s": busy / tick, "tool_s": self.tool_s(tick)}

    def tool_s(self, tick: int) -> float | None:
        if self.child is None or self.child.returncode is not None:
            return None
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / tick

    def files(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in sorted(self.folder.iterdir())}

    def get(self, name: str) -> None:
        """Send a file of the directory: a line with its size, then its bytes."""
        with (self.folder / Path(name).name).open("rb") as file:
            left = os.fstat(file.fileno()).st_size
            tell({"bytes": left})
            while left:
                piece = file.read(min(left, _CHUNK)) or bytes(min(left, _CHUNK))
                write(piece)
                left -= len(piece)


def tell(what: dict[str, Any]) -> None:
    """Send one line of JSON to the other side."""
    write(json.dumps(what).encode() + b"\n")


def write(piece: bytes) -> None:
    """Write all of the bytes."""
    while piece:
        piece = piece[os.write(1, piece) :]


def main() -> None:
    """Make the directory, start both processes, and remove the directory at the end."""
    folder = Path(tempfile.mkdtemp(prefix="dbbench-client-"))
    outer = os.getpid()
    inner = os.fork()
    if inner == 0:
        agent = Agent(folder, outer)
        try:
            with contextlib.suppress(BrokenPipeError):
                agent.serve()
        finally:
            agent.stop()
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
    try:
        os.waitpid(inner, 0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
