"""Every parser of what a tool prints, on recordings that were changed as another version of the tool
might: a key or a line is missing, new or of another kind, a list is empty.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench.drivers import bonnie, filework_load, fio
from dbbench.errors import DbbenchError
from dbbench.samplers import iostat, sar
from dbbench.storage.devices import ceiling, guard, naming, smart
from dbbench.storage.filesystems import btrfs, ext, f2fs, xfs
from dbbench.storage.filesystems.zfs import properties
from dbbench.storage.layers import crypt, lvm

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
Parser = Callable[[str], object]


def nvme(text: str) -> object:
    """The wear that nvme-cli reports."""
    return smart.of_nvme(json.loads(text))


def smartctl(text: str) -> object:
    """The wear that smartctl reports."""
    return smart.of_smartctl(json.loads(text))


def lvs(text: str) -> object:
    """The sizes of a group's volumes."""
    return {name: row.get("lv_size") for name, row in lvm.parse_lvs(text).items()}


def facts_of_lvs(text: str) -> object:
    """The facts of a group with the volume `data`."""
    return lvm.volume_facts(lvm.parse_lvs(text))


def ceiling_rows(text: str) -> object:
    """The rows of the bare device. Its caller handles ValueError."""
    try:
        return ceiling.parse_rows(text)
    except ValueError as error:
        return str(error)


def iostat_of_vda(text: str) -> object:
    """What iostat reports of a disk."""
    return iostat.parse(text, "vda")


def sadf_of_vda(text: str) -> object:
    """What sadf reports of a disk."""
    return sar.parse(text, ("vda",))


def cryptsetup(text: str) -> object:
    """The facts of an encrypted volume."""
    return crypt.parse_status(text)


def xfs_freesp(text: str) -> object:
    """The free extents of xfs with blocks of 4 KiB."""
    return xfs.parse_freesp(text, 4096)


def filework_of_one(text: str) -> object:
    """The copy of one client."""
    return filework_load.parse_copy(text)


# the beginning of the names of recordings of text -> their parser
LINES: Final[dict[str, Parser]] = {
    "filesystems/btrfs-du-": btrfs.parse_du,
    "filesystems/btrfs-dump-super-": btrfs.parse_super,
    "filesystems/btrfs-dump-tree-chunk-": btrfs.parse_chunks,
    "filesystems/btrfs-usage-": btrfs.parse_usage,
    "filesystems/compsize": btrfs.parse_compsize,
    "filesystems/dump.f2fs": f2fs.parse_dump,
    "filesystems/dumpe2fs-": ext.parse_dumpe2fs,
    "filesystems/e2freefrag-": ext.parse_e2freefrag,
    "filesystems/xfs-freesp-": xfs_freesp,
    "filesystems/xfs_info-": xfs.parse_xfs_info,
    "layers/cryptsetup-status": cryptsetup,
    "zfs/zdb-label-": properties.parse_label,
    "zfs/zfs-get-": properties.parse_get,
    "drivers/bonnie.csv": bonnie.parse,
    "drivers/copy.out": filework_of_one,
    "drivers/smallfiles.out": filework_load.steps,
}
# what another version may print in place of a number
OTHER_WORDS: Final = ("", "-", "[unknown]", "1,5", "nan", "9" * 30)

# recording -> its parser
RECORDED: Final[dict[str, Parser]] = {
    "devices/lsblk-2.41.5.json": naming.parse_lsblk,
    "devices/wipefs_dos.json": guard.parse,
    "devices/wipefs_ext4.json": guard.parse,
    "devices/wipefs-lvm-2.41.5.json": guard.parse,
    "devices/wipefs-md-2.41.5.json": guard.parse,
    "devices/nvme-2.13.json": nvme,
    "devices/smartctl-nvme-7.4.json": smartctl,
    "devices/smartctl-scsi-7.4.json": smartctl,
    "layers/lvs-thin.json": facts_of_lvs,
    "layers/lvs-2.03.31.json": lvs,
    "samplers/iostat-12.6.1.json": iostat_of_vda,
    "samplers/iostat-12.7.5.json": iostat_of_vda,
    "samplers/sar-12.6.1.json": sadf_of_vda,
    "samplers/sar-12.7.5.json": sadf_of_vda,
    "fio/two_rows.json": ceiling_rows,
    "drivers/fio.json": fio.parse,
}


def containers(document: Any) -> Iterator[Any]:
    """Yield every object and list of a document, the document first."""
    if isinstance(document, dict | list):
        yield document
        for inner in document.values() if isinstance(document, dict) else document:
            yield from containers(inner)


def changed(document: Any) -> Iterator[tuple[str, str]]:
    """Yield a description and the text of the document with each of the changes, one at a time. The
    document itself is changed, and restored after each of them.
    """
    for container in list(containers(document)):
        shown = str(container)[:60]
        before = copy.copy(container)
        keys = list(container) if isinstance(container, dict) else range(min(1, len(container)))
        for key in keys:
            for other in (None, "text", -1, []):
                container[key] = other
                yield f"{other!r}: {key} of {shown}", json.dumps(document)
            del container[key]
            yield f"missing: {key} of {shown}", json.dumps(document)
            restore(container, before)
        if isinstance(container, list):
            container.clear()
            yield f"empty: {shown}", json.dumps(document)
            restore(container, before)


def restore(container: Any, before: Any) -> None:
    """Give the container its content of before, in the same order."""
    container.clear()
    if isinstance(container, dict):
        container.update(before)
    else:
        container.extend(before)


def with_more_keys(document: Any) -> Any:
    """Return the document with a new key in every object."""
    copied = copy.deepcopy(document)
    for container in list(containers(copied)):
        if isinstance(container, dict):
            container["new-in-this-version"] = {"list": [None]}
    return copied


def shortened(document: Any) -> Any:
    """Return the document with at most three entries in each list, so that a test takes a second."""
    if isinstance(document, dict):
        return {key: shortened(inner) for key, inner in list(document.items())[:40]}
    return [shortened(inner) for inner in document[:3]] if isinstance(document, list) else document


@pytest.mark.parametrize("name", RECORDED)
def test_another_versions_output_is_read_or_reported(name: str) -> None:
    """A parser that does not understand an output raises an error with an ID, which names the
    tool: nothing else, which would end a command with E999.
    """
    document = shortened(json.loads((FIXTURES / name).read_text()))
    failed = []
    for what, text in changed(document):
        try:
            RECORDED[name](text)
        except DbbenchError:
            continue
        except Exception as error:
            failed.append(f"{what}: {error!r}")
    assert failed == []


def changed_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield a description and the text with each of the changes, one at a time."""
    lines = text.splitlines(keepends=True)[:60]
    for number, line in enumerate(lines):
        before = "".join(lines[:number])
        after = "".join(lines[number + 1 :])
        yield f"without {line!r}", before + after
        yield f"up to {line!r}", before
        yield f"in the middle of {line!r}", before + line[: len(line) // 2]
        yield f"twice {line!r}", before + line + line + after
        for other in OTHER_WORDS:
            yield f"{other!r} in {line!r}", before + re.sub(r"\d+", other, line) + after


@pytest.mark.parametrize("start", LINES)
def test_another_versions_lines_are_read_or_reported(start: str) -> None:
    """As of JSON: an error has an ID, and never ends a command with E999."""
    parse = LINES[start]
    folder, _, name = start.partition("/")
    recordings = sorted((FIXTURES / folder).glob(f"{name}*"))
    failed = []
    for what, text in changed_lines(recordings[-1].read_text()):
        try:
            parse(text)
        except DbbenchError:
            continue
        except Exception as error:
            failed.append(f"{what}: {error!r}")
    assert failed == []


@pytest.mark.parametrize("name", RECORDED)
def test_new_keys_change_nothing(name: str) -> None:
    """A newer version prints more than is known here."""
    parse = RECORDED[name]
    text = (FIXTURES / name).read_text()
    more = json.dumps(with_more_keys(json.loads(text)))
    if name == "drivers/fio.json":  # a bin of its histogram is a key
        with pytest.raises(DbbenchError):
            parse(more)
    else:
        assert parse(more) == parse(text)


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "0", "not JSON", '{"a": '])
def test_no_document_is_reported(name: str, text: str) -> None:
    """Output that is no document of this tool is an error with an ID, or says that there is nothing."""
    try:
        RECORDED[name](text)
    except (DbbenchError, ValueError) as error:
        assert str(error)
