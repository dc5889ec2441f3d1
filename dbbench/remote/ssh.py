"""How dbbench calls ssh: for the workers of a fleet, and for the session with the agent on a load
generator's host.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import shlex
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.errors import ClientUnusable, DbbenchError, DriverFailed
from dbbench.machine import threads
from dbbench.model import Json

# Limits on an ordinary machine (`process.allowed_s`). ssh itself gives up earlier if the host does
# not answer; a login and the start of Python can take long on a slow one.
CONNECT_S: Final = 60.0
ASK_S: Final = 60.0
_REACH_S: Final = 10.0
_INTERRUPTED_S: Final = 30.0
_BEAT_S: Final = 5.0  # the agent ends after 60 s without data (SILENCE_S)
# seconds for the agent to end the load generator and remove its directory, and for ssh to end
_END_S: Final = 15.0
_THREADS_S: Final = 1.0  # seconds until a thread whose pipe is closed has ended
# Exit statuses if Python is too old (1), or the shell cannot start it (126, 127); ssh reports its
# errors with 255.
_OF_PYTHON: Final = (1, 126, 127)
_ALIVE_S: Final = 5  # the host answers as often
# ssh does not ask for passwords, and does not share connections.
_OPTIONS: Final = (
    "-T",
    "-o",
    "BatchMode=yes",
    "-o",
    "ControlMaster=no",
    "-o",
    "ControlPath=none",
    "-o",
    "ClearAllForwardings=yes",
    "-o",
    f"ServerAliveInterval={_ALIVE_S}",
)


def command(host: str, words: Sequence[str]) -> list[str]:
    """Return the argv that runs a program on another host, an ssh destination; the shell there gets
    one quoted line.
    """
    reach_s = process.allowed_s(_REACH_S)
    missing = process.allowed_s(_INTERRUPTED_S) / _ALIVE_S
    limits = [
        "-o",
        f"ConnectTimeout={reach_s:.0f}",
        "-o",
        f"ServerAliveCountMax={missing:.0f}",
    ]
    return ["ssh", *_OPTIONS, *limits, "--", host, shlex.join(words)]


class Session:
    """Sends requests to the agent, one at a time. Output of the load generator goes to `prints`
    ("out", "err").
    """

    def __init__(self, host: str, ssh: process.Running, log: Path) -> None:
        self.host = host
        self.log = log
        self.prints: dict[str, Path] = {}
        # the agent's message about the end of the load generator
        self.ended: Json | None = None
        self.facts: Json = {}
        self._ssh, self._writing = ssh, threading.Lock()
        self._answers: queue.Queue[Json | None] = queue.Queue()
        self._done = threading.Event()
        self._helpers = [
            threads.Helper(f"client {what}", work)
            for what, work in (("listen", self._listen), ("beat", self._beat))
        ]

    @property
    def gone(self) -> bool:
        return self._done.is_set()

    def begin(self, agent: bytes) -> None:
        """Send the agent and wait for its first message. Raises ClientUnusable."""
        with contextlib.suppress(BrokenPipeError):
            self._write(agent)
        for helper in self._helpers:
            helper.start()
        try:
            first = self._next(CONNECT_S)
        except queue.Empty:
            raise self._unreachable(f"no answer within {CONNECT_S:.0f} s or more") from None
        if first is None or "hello" not in first:
            status = self._ssh.wait(_END_S)
            if status in _OF_PYTHON:
                raise ClientUnusable(
                    f"{self.host}: no Python: {self._last_lines()}",
                    remedy=f"Install python3 (3.7 or later) on {self.host}.",
                )
            raise self._unreachable(self._last_lines())
        self.facts = first["hello"]

    def ask(self, do: str, **what: Any) -> Any:
        """Send a request; return the agent's answer. Raises DriverFailed, or ClientUnusable if it
        failed there.
        """
        try:
            self._write(json.dumps({"do": do, **what}).encode() + b"\n")
            answer = self._next(ASK_S)
        except (OSError, queue.Empty):
            answer = None
        if answer is None:
            raise self.lost(f"no answer to the request {do}")
        if "error" in answer:
            raise ClientUnusable(
                f"{self.host}: {answer['error']}", effect="The trial is marked failed."
            )
        return answer.get("answer")

    def _next(self, usual_s: float) -> Json | None:
        """Return the agent's next message, None at the end of the connection. Raises queue.Empty."""
        with contextlib.suppress(queue.Empty):
            return self._answers.get(timeout=usual_s)
        return self._answers.get(timeout=process.allowed_s(usual_s) - usual_s)

    def put(self, name: str, content: bytes) -> str:
        return str(self.ask("put", name=name, content=base64.b64encode(content).decode()))

    def get(self, name: str, target: Path) -> None:
        """Copy a file of the agent's directory. Raises DriverFailed."""
        with target.open("wb") as file:
            while piece := self.ask("read", name=name, at=file.tell()):
                file.write(base64.b64decode(piece))

    def lost(self, what: str) -> DbbenchError:
        """Return the error for a broken connection: HelperDied if a thread of dbbench caused it."""
        if self.gone:
            self._helpers[0].join(_THREADS_S)
        self.check()
        return DriverFailed(
            f"{self.host}: {what}; ssh says: {self._last_lines()}",
            effect="The trial is marked failed.",
            remedy=f"Check the network between the two hosts, for example with: ssh {self.host} true",
        )

    def close(self) -> None:
        """Have the agent end the load generator and remove its directory; then ssh ends by itself."""
        pipe = self._ssh.popen.stdin
        with self._writing, contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(Exception):
            self._ssh.wait(_END_S)
        self._done.set()
        for helper in self._helpers:
            helper.join(_THREADS_S)

    def check(self) -> None:
        for helper in self._helpers:
            helper.check()

    def _write(self, content: bytes) -> None:
        pipe = self._ssh.popen.stdin
        with self._writing:
            if pipe is None or pipe.closed:
                raise BrokenPipeError
            pipe.write(content)
            pipe.flush()

    def _beat(self) -> None:
        while not self._done.wait(_BEAT_S):
            with contextlib.suppress(OSError):
                self._write(b'{"do": "beat"}\n')

    def _listen(self) -> None:
        pipe = self._ssh.popen.stdout
        assert pipe is not None
        try:
            while line := pipe.readline():
                # Other lines are the output of a login shell.
                answer = None
                with contextlib.suppress(ValueError):
                    answer = json.loads(line)
                if not isinstance(answer, dict):
                    continue
                if "output" in answer:
                    with self.prints[answer["output"]].open("a") as file:
                        file.write(answer["text"])
                elif "ended" in answer:
                    self.ended = answer
                else:
                    self._answers.put(answer)
        finally:
            self._done.set()
            self._answers.put(None)

    def _last_lines(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "; ".join([line for line in lines if line.strip()][-3:]) or "nothing"

    def _unreachable(self, why: str) -> DbbenchError:
        return ClientUnusable(
            f"{self.host}: {why}",
            remedy="Make this command work for this user without a prompt: ssh -o BatchMode=yes "
            f"{self.host} true",
        )


@contextlib.contextmanager
def session_on(host: str, log: Path) -> Iterator[Session]:
    """Yield a session with an agent on `host`, an ssh destination; at the end nothing of it is left
    there. `log` takes ssh's error messages. Raises ClientUnusable, ProgramMissing.
    """
    agent = Path(__file__).with_name("agent.py").read_bytes()
    start = f"import os;exec(b''.join(os.read(0,1)for _ in range({len(agent)})))"
    argv = command(host, ["python3", "-I", "-c", start])
    env = {"SSH_AUTH_SOCK": os.environ["SSH_AUTH_SOCK"]} if "SSH_AUTH_SOCK" in os.environ else {}
    with process.running(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=env,
        own_session=True,
    ) as program:
        session = Session(host, program, log)
        try:
            session.begin(agent)
            yield session
        finally:
            session.close()
        session.check()
