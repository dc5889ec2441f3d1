"""The second kernel: everything that can be tested without booting it."""

import os
import struct
from pathlib import Path

import pytest

from tests.support import second_kernel
from tests.support.second_kernel.build import symvers
from tests.support.second_kernel.inside import FAULTS
from tests.support.second_kernel.smallroot import small_command
from tests.system.test_second_kernel import CATALOGUE, INSIDE, SYSTEM

BASE = 0x60000000


STRINGS = b"inode_init\0\0kmalloc\0dma_fence\0DMA_BUF\0"


def table(symbols: list[tuple[str, str]]) -> bytes:
    """The section __ksymtab of these symbols, each with a namespace."""
    at = {
        text: BASE + STRINGS.index(text.encode() + b"\0") for symbol in symbols for text in symbol
    }
    at[""] = BASE + STRINGS.index(b"\0\0") + 1
    return b"".join(struct.pack("<QQQ", 1, at[name], at[namespace]) for name, namespace in symbols)


SYMBOLS = table([("kmalloc", ""), ("inode_init", ""), ("dma_fence", "DMA_BUF")])


def test_symbols_are_read_with_their_licence_and_namespace() -> None:
    """A line a symbol, as the kernel's own build writes Module.symvers; bit 0 of the flags: for GPL
    modules only.
    """
    assert symvers(SYMBOLS, bytes((0, 1, 0)), STRINGS).splitlines() == [
        "0x00000000\tkmalloc\tvmlinux\tEXPORT_SYMBOL\t",
        "0x00000000\tinode_init\tvmlinux\tEXPORT_SYMBOL_GPL\t",
        "0x00000000\tdma_fence\tvmlinux\tEXPORT_SYMBOL\tDMA_BUF",
    ]


@pytest.mark.parametrize(
    ("symbols", "flags", "strings"),
    [
        (b"", b"", b""),
        (SYMBOLS, b"", STRINGS),
        (SYMBOLS[:-1], bytes(3), STRINGS),
        (SYMBOLS, bytes(3), b"kmalloc\0"),
    ],
)
def test_a_kernel_without_the_tables_is_refused(
    symbols: bytes,
    flags: bytes,
    strings: bytes,
) -> None:
    """A kernel of another shape must not give an empty list: the module would be built without any
    symbol. objcopy writes an empty file for a section that does not exist.
    """
    with pytest.raises(ValueError):
        symvers(symbols, flags, strings)


def test_the_newest_build_of_this_recipe_is_used(tmp_path: Path, environ: dict[str, str]) -> None:
    """Builds of another recipe are passed over, and so is one that is still being made."""
    environ["XDG_CACHE_HOME"] = str(tmp_path)
    assert second_kernel.found() is None
    for age, name in enumerate(
        [f"uml-2-r{second_kernel.RECIPE}", f"uml-1-r{second_kernel.RECIPE}", "uml-3-r0", ".making"]
    ):
        root = tmp_path / "dbbench/second-kernel" / name / "root"
        root.mkdir(parents=True)
        os.utime(root, (1000 - age, 1000 - age))
    assert (
        second_kernel.found()
        == tmp_path / f"dbbench/second-kernel/uml-2-r{second_kernel.RECIPE}/root"
    )


def test_other_machines_get_the_reason() -> None:
    """The kernel is packaged for one architecture."""
    assert "requires Linux on x86-64; this is linux on aarch64" in (
        second_kernel.unavailable("aarch64") or ""
    )


def test_programs_of_the_small_root_run_from_anywhere() -> None:
    """By its own loader and libraries, under their own name; modules are those of its kernel."""
    words = small_command(Path("/c"), "modprobe")
    assert words[0].startswith("/c/lib64/ld-linux")
    assert words[words.index("--argv0") + 1] == "modprobe"
    assert words[-3:] == ["/c/usr/bin/kmod", "-d", "/c"]


def test_lines_of_a_fault_are_known() -> None:
    """What the kernel prints of a fault of its own."""
    faults = (
        "VERIFY(zp != NULL) failed",
        "WARNING: CPU: 0 PID: 1 at fs/inode.c:1",
        "BUG: unable to handle page fault",
    )
    others = (
        "ZFS: Loaded module v2.4.4-1, ZFS pool version 5000",
        "EXT4-fs (ubda): mounted filesystem without journal",
    )
    assert all(FAULTS.search(f"[    1.0] {line}") for line in faults)
    assert not any(FAULTS.search(f"[    1.0] {line}") for line in others)


@pytest.mark.parametrize("name", (*INSIDE, *CATALOGUE))
def test_each_test_that_runs_inside_exists(name: str) -> None:
    """pytest runs none of them where one name is wrong, and the long lane is where that shows."""
    path, _, case = name.partition("::")
    assert f"def {case.partition('[')[0]}(" in (SYSTEM / path).read_text()
