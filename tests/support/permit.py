"""The permission to erase devices, for tests."""

from pathlib import Path

from dbbench.results.journal import Journal
from dbbench.storage.devices import guard


class Permit(guard.Permit):
    """The identities that the user confirmed, and the filesystem and device of an earlier trial."""

    def __init__(self, *typed: str, made: tuple[str, str] = ("", ""), had: str = "") -> None:
        super().__init__(typed, Journal(Path("/nonexistent/run/journal.jsonl")))
        self.__dict__.update(made=made, had=had)

    made: tuple[str, str]
    had: str

    def wipe(self, identity: str) -> bool:
        return identity in self.typed

    def is_ours(self, reason: guard.Reason, identity: str) -> bool:
        if reason.kind == "data":
            return identity == self.had
        return reason.kind == "signature" and (identity, reason.uuid) == self.made
