"""Module.symvers of a kernel that ships none: its exported symbols, read out of the executable.

OpenZFS's configure asks it which symbols only GPL modules may use; without it the module is built wrong and does
not load. Since Linux 7.1 `__ksymtab` holds three addresses a symbol (value, name, namespace) and `__kflagstab` one
byte (bit 0: GPL only). Versions of symbols are 0: user-mode Linux is built without MODVERSIONS.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")  # Elf64_Ehdr
_SECTION: Final = struct.Struct("<IIQQQQ")  # the beginning of Elf64_Shdr: name, type, flags, addr, offset, size
_SECTION_BYTES: Final = 64
_ENTRY: Final = struct.Struct("<QQQ")
_GPL: Final = 1


@dataclass(frozen=True)
class _Section:
    address: int
    offset: int
    size: int


def symvers(executable: bytes) -> str:
    """The text of Module.symvers. ValueError where the executable has no tables of that shape."""
    sections = _sections(executable)
    try:
        symbols, flags = sections["__ksymtab"], sections["__kflagstab"]
    except KeyError as missing:
        raise ValueError(f"the kernel has no section {missing}") from None
    count, rest = divmod(symbols.size, _ENTRY.size)
    if rest or flags.size < count:
        raise ValueError(f"__ksymtab has {symbols.size} bytes and __kflagstab {flags.size}: not the known shape")
    lines = []
    for number in range(count):
        _value, name, namespace = _ENTRY.unpack_from(executable, symbols.offset + number * _ENTRY.size)
        gpl = executable[flags.offset + number] & _GPL
        export = "EXPORT_SYMBOL_GPL" if gpl else "EXPORT_SYMBOL"
        words = ("0x00000000", _at(executable, sections, name), "vmlinux", export, _at(executable, sections, namespace))
        lines.append("\t".join(words))
    return "\n".join(lines) + "\n"


def _sections(executable: bytes) -> dict[str, _Section]:
    if executable[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF executable")
    header = _HEADER.unpack_from(executable)
    table, count, names = header[6], header[12], header[13]
    raw = [_SECTION.unpack_from(executable, table + _SECTION_BYTES * number) for number in range(count)]
    strings = raw[names][4]
    return {_text(executable, strings + name): _Section(at, offset, size) for name, _, _, at, offset, size in raw}


def _at(executable: bytes, sections: dict[str, _Section], address: int) -> str:
    """The string at an address of the running kernel; "" where none is."""
    for section in sections.values():
        if section.address and section.address <= address < section.address + section.size:
            return _text(executable, section.offset + address - section.address)
    return ""


def _text(executable: bytes, offset: int) -> str:
    return executable[offset : executable.index(b"\0", offset)].decode()
