"""Devices that fstab, crypttab and units of systemd name although nothing uses them now."""

from pathlib import Path

import pytest

from dbbench.commands.doctor import Probe, Purpose, put_rows
from dbbench.storage.devices import configured
from dbbench.storage.devices.used import Target
from tests.support.files import write_file

# The status of a file outside of /dev is asked for in a process of its own.
pytestmark = pytest.mark.starts_processes
FILES = {
    "fstab": "# UUID=a /old\nUUID=a /srv ext4 defaults 0 1\n\nLABEL=my\\040data /srv2 xfs\n",
    "crypttab": "# name device key\nsafe UUID=b none luks\nbroken\n",
    "systemd/system/srv-x.mount": "[Unit]\n[Mount]\nWhat=/dev/disk/by-uuid/c\nWhere=/srv/x\n",
    "systemd/system/dev-y.swap": "[Swap]\nWhat = {file}\n",
    "systemd/system/some.service": "[Service]\nWhat=/dev/disk/by-uuid/d\n",
}


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory like /etc; the units of this machine's packages do not count."""
    monkeypatch.setattr(configured, "_UNITS", ())
    for name, text in FILES.items():
        write_file(tmp_path / name, text.replace("{file}", str(tmp_path / "fstab")))
    return tmp_path


@pytest.mark.parametrize(
    ("tag", "evidence"),
    [
        ("UUID=a", ["fstab: UUID=a /srv ext4 defaults 0 1"]),
        ("LABEL=my data", [r"fstab: LABEL=my\040data /srv2 xfs"]),
        ("UUID=b", ["crypttab: safe UUID=b none luks"]),
        ("UUID=c", ["systemd/system/srv-x.mount: What=/dev/disk/by-uuid/c"]),
        ("UUID=d", []),
    ],
)
def test_a_device_is_found_by_its_tag(tag: str, evidence: list[str], etc: Path) -> None:
    """A comment and another kind of unit name nothing."""
    device = Target("sdb", frozenset(), frozenset())
    listed = configured.entries(etc)
    texts = configured.by_configuration(device, listed, {tag})
    assert texts == [f"it is listed in {etc}/{text}" for text in evidence]


def test_a_device_is_found_by_its_path(etc: Path) -> None:
    """Here the path is a file, as that of a loop device."""
    status = (etc / "fstab").stat()
    device = Target("loop1", frozenset(), frozenset({(status.st_dev, status.st_ino)}))
    (text,) = configured.by_configuration(device, configured.entries(etc), set())
    assert text.endswith(f"dev-y.swap: What = {etc}/fstab")


def test_a_machine_without_such_files_names_nothing(tmp_path: Path) -> None:
    """As a container."""
    assert not [entry for entry in configured.entries(tmp_path) if entry.place.parent == tmp_path]


def test_a_device_with_a_signature_is_not_listed_as_free(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A member of an inactive volume group has nothing but its signature."""
    row = Probe(Purpose.DEVICES, "device /dev/sdb", ok=False, found="LVM2_member", optional=True)
    put_rows([row, row._replace(ok=True), row._replace(optional=False)])
    _title, *lines = capsys.readouterr().out.splitlines()
    states = [line.split("  ")[1] for line in lines]
    assert states == ["not empty", "ok", "in use"]


def test_a_name_that_no_file_can_have_hides_no_other(etc: Path) -> None:
    """A null byte in a line of fstab names nothing; the lines below it are still read."""
    fstab = etc / "fstab"
    fstab.write_text(f"/dev/a\0b /mnt ext4 defaults 0 0\n{fstab.read_text()}")
    words = [entry.word for entry in configured.entries(etc)]
    assert words[:2] == ["/dev/a\0b", "UUID=a"]
