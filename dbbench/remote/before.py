"""What a plan needs of the client's host, looked at before anything is changed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from dbbench import process
from dbbench.clock import Clock
from dbbench.errors import DbbenchError, ProgramMissing
from dbbench.model import ClientSpec
from dbbench.remote.client import offset_of, punctual, reachable, tool_of
from dbbench.remote.network import password
from dbbench.remote.session import opened


def lacking(spec: ClientSpec, drivers: Mapping[str, str]) -> Iterator[DbbenchError]:
    """All that stands in the way: the password's file, ssh, programs, the way to the server's address, the clock.
    `drivers`: each load generator of the plan with the version of its server."""
    if absent := [name for name in ("ssh", "openssl") if process.find(name) is None]:
        yield ProgramMissing(f"not installed: {', '.join(absent)}", effect="No load was started.",
                             remedy="apt-get install --no-install-recommends openssh-client openssl")  # fmt: skip
        return
    try:
        password(spec)
    except DbbenchError as error:
        yield error
    with tempfile.TemporaryDirectory(prefix="dbbench-") as folder:
        try:
            yield from _of_host(spec, drivers, Path(folder) / "ssh.err")
        except DbbenchError as error:
            yield error


def _of_host(spec: ClientSpec, drivers: Mapping[str, str], log: Path) -> Iterator[DbbenchError]:
    with opened(spec.host, log) as session:
        for driver, version in drivers.items():
            try:
                tool_of(session, driver, version)
            except DbbenchError as error:
                yield error
        try:
            reachable(session, spec)
            punctual(session, offset_of(session, Clock())[0])
        except DbbenchError as error:
            yield error
