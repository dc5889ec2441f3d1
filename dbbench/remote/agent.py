"""The program on the client's host: it starts the load generator, answers requests, and leaves
nothing behind. `ssh` sends this file's text, so that nothing has to be installed there: Python
3.7's standard library is sufficient. Requests are lines of JSON on stdin, {"do": NAME, ...};
answers are lines on stdout, {"answer": ...} or {"error": TEXT}. {"output": ...} and
{"ended": ...} occur between them while the load generator runs.

The outer process waits for the inner one, which works. If either is killed, the other one
removes the directory; the load generator dies with the inner one (PR_SET_PDEATHSIG, set by
setpriv). The inner one ends with stdin, when ssh ends on the other side, and after SILENCE_S
without data, when the network is interrupted.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

SILENCE_S = 60  # the other side sends at least a "beat" every 5 s
PIECE_BYTES = 1 << 20
_VERSION_S = 10.0
_PLACES = os.environ.get("PATH", "") + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_telling = threading.Lock()


class Agent:
    """The inner process. `folder` is private, and is removed when the process ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.child: Any = None  # a Popen of bytes

    def serve(self, requests: Any) -> None:
        """Answer requests until their end. Silence ends this process by SIGALRM."""
        for line in requests:
            signal.alarm(SILENCE_S)
            asked = json.loads(line.decode())
            do = asked.pop("do")
            if do == "beat":
                continue
            try:
                tell(answer=getattr(self, do)(**asked))
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                tell(error=f"{do}: {error}")

    def facts(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "hostname": socket.gethostname(),
            "kernel": platform.release(),
            "cores": sorted(os.sched_getaffinity(0)),
            "setpriv": shutil.which("setpriv", path=_PLACES),
        }

    def clock(self) -> dict[str, float]:
        return {"utc": time.time(), "monotonic": time.monotonic()}

    def versions(self, name: str, patterns: list[str]) -> dict[str, str]:
        """Return what each program of that name in PATH, and at these patterns of paths, prints as
        its version, by path. Programs that fail, or do not end, are left out.
        """
        paths = [str(path) for pattern in patterns for path in sorted(Path("/").glob(pattern[1:]))]
        printed = {}
        for path in [*paths, shutil.which(name, path=_PLACES)]:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                if path:
                    text = subprocess.check_output(
                        [path, "--version"],
                        stdin=subprocess.DEVNULL,
                        stderr=subprocess.STDOUT,
                        timeout=_VERSION_S,
                    )
                    printed[path] = text.decode("utf-8", "replace").strip()
        return printed

    def reach(
        self,
        host: str,
        port: int,
        word: str,
        times: int,
        within_s: float,
    ) -> list[float]:
        """Connect `times` times and send the word; return the seconds of each connection, which is
        a round trip.
        """
        took = []
        for _ in range(times):
            began = time.monotonic()
            with socket.create_connection((host, port), within_s) as connection:
                took.append(time.monotonic() - began)
                connection.sendall(word.encode())
        return took

    def put(self, name: str, content: str) -> str:
        """Write a file of the directory, readable only by this account; `content` is base64."""
        path = self.folder / Path(name).name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(base64.b64decode(content))
        return str(path)

    def start(
        self,
        argv: list[str],
        env: dict[str, str],
        stdin: str,
    ) -> dict[str, float]:
        """Start the load generator in a new session in the directory; return the time of both
        clocks just before.
        """
        began = self.clock()
        variables = {
            "PATH": os.environ.get("PATH", ""),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "HOME": str(self.folder),
            "DBBENCH_BEGIN": f"{began['monotonic']:.6f}",
        }
        self.child = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=str(self.folder),
            env={**variables, **env},
            start_new_session=True,
        )
        threading.Thread(target=self.watch, daemon=True).start()
        with contextlib.suppress(BrokenPipeError), self.child.stdin as pipe:
            pipe.write(stdin.encode())
        return began

    def watch(self) -> None:
        """Forward what the load generator prints, line by line, and its end when it has closed
        both its streams.
        """
        errors = threading.Thread(target=forward, args=("err", self.child.stderr), daemon=True)
        errors.start()
        forward("out", self.child.stdout)
        errors.join()
        _, status, used = os.wait4(self.child.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self.child.returncode = code
        tell(ended=code, cpu_s=used.ru_utime + used.ru_stime)

    def cpu(self) -> dict[str, Any]:
        """Return CPU seconds since boot: of all processors, and of the load generator while it
        runs.
        """
        tick = os.sysconf("SC_CLK_TCK")
        first = Path("/proc/stat").read_text().partition("\n")[0]
        ticks = [int(word) for word in first.split()[1:9]]
        # without idle, iowait and steal (proc_stat(5))
        busy = sum(ticks) - ticks[3] - ticks[4] - ticks[7]
        tool_s = None
        if self.child is not None and self.child.returncode is None:
            stat = Path(f"/proc/{self.child.pid}/stat").read_text()
            # The name of the program, in parentheses, may have spaces.
            fields = stat.rpartition(")")[2].split()
            tool_s = (int(fields[11]) + int(fields[12])) / tick
        return {
            "monotonic": time.monotonic(),
            "busy_s": busy / tick,
            "tool_s": tool_s,
        }

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def read(self, name: str, at: int) -> str:
        """Return the next bytes of a file of the directory as base64; "" at its end."""
        with (self.folder / Path(name).name).open("rb") as file:
            file.seek(at)
            return base64.b64encode(file.read(PIECE_BYTES)).decode()


def forward(name: str, stream: Any) -> None:
    """Send each line of a stream of the load generator."""
    for line in stream:
        tell(output=name, text=line.decode("utf-8", "replace"))


def tell(**what: Any) -> None:
    """Send one line of JSON to the other side."""
    with _telling:
        sys.stdout.buffer.write(json.dumps(what).encode() + b"\n")
        sys.stdout.buffer.flush()


def main() -> None:
    """Make the directory, start both processes, and remove the directory at the end."""
    folder = Path(tempfile.mkdtemp(prefix="dbbench-client-"))
    inner = os.fork()
    try:
        if inner == 0:
            agent = Agent(folder)
            with contextlib.suppress(BrokenPipeError):
                tell(hello=agent.facts())
                agent.serve(sys.stdin.buffer)
            if agent.child is not None:
                agent.child.kill()
                agent.child.wait()
        else:
            os.waitpid(inner, 0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


if __name__ == "__main__":
    main()
