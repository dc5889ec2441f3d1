"""The permission to erase devices, for tests."""

from __future__ import annotations


class Permit:
    """The identities that the user confirmed, and the filesystem and device of an earlier trial."""

    def __init__(self, *typed: str, made: tuple[str, str] = ("", ""), had: str = "") -> None:
        self.typed, self.made, self.had = typed, made, had

    def wipe(self, identity: str) -> bool:
        return identity in self.typed

    def made_by_us(self, device: str, uuid: str) -> bool:
        return (device, uuid) == self.made

    def had_by_us(self, device: str) -> bool:
        return device == self.had
