"""How dbbench calls ssh: for a load generator on another host, and for the workers of a fleet."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

# ssh does not ask for passwords, does not share connections, and detects an interrupted network after 30 s.
_OPTIONS: Final = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ControlMaster=no",
                   "-o", "ControlPath=none", "-o", "ClearAllForwardings=yes", "-o", "ServerAliveInterval=5",
                   "-o", "ServerAliveCountMax=6")  # fmt: skip


def command(host: str, words: Sequence[str]) -> list[str]:
    """Return the argv that runs a program on another host, an ssh destination; the shell there gets one quoted line."""
    return ["ssh", *_OPTIONS, "--", host, shlex.join(words)]
