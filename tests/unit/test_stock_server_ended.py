"""The stock server, when its emulator crashes or is killed."""

import subprocess
from pathlib import Path

import pytest

from tests.machine.stock_server import Ended, Server

pytestmark = [pytest.mark.needs("ssh"), pytest.mark.starts_processes]


@pytest.mark.parametrize(("ends", "status"), [("kill -9 $$", -9), ("exit 0", 0)])
def test_an_emulator_that_ended_is_named_with_its_last_words(
    tmp_path: Path,
    ends: str,
    status: int,
) -> None:
    """Not as a command that failed: tests after it would wait for a server that is gone."""
    (tmp_path / "qemu.log").write_text("qemu: fatal\n")
    (tmp_path / "console.log").write_text("Kernel panic\n")
    with subprocess.Popen(["sh", "-c", ends]) as qemu:
        qemu.wait(60)
    server = Server(tmp_path, tmp_path, qemu=qemu)
    with pytest.raises(Ended) as raised:
        server.wait_for("true")
    assert server.has_ended()
    assert str(raised.value) == f"qemu ended with status {status}:\nqemu: fatal\n\nKernel panic\n"
