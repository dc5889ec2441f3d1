"""A server into which dumps are loaded, and dumps that were cut or changed."""

import contextlib
import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench.datasets import sources
from dbbench.engines import ENGINES
from dbbench.engines.port import Server
from dbbench.engines.sql import execute, rows
from dbbench.errors import DatasetBuildFailed, SourceUnusable
from dbbench.model import SourceChangeKind
from tests.support import servers

CUTS: Final = int(os.environ.get("DBBENCH_CUTS", "6"))  # of each dump; `make soak`: 20


class Loader:
    """A server into which dumps are loaded one after the other."""

    def __init__(self, engine: str, folder: Path, server: Server) -> None:
        self.engine = engine
        self.folder = folder
        self.server = server

    def load(self, path: Path) -> list[SourceChangeKind]:
        """Load the dump into an empty server; return what was changed."""
        self.clean()
        source = sources.look(path)
        changes = sources.load(source, source.dataset(), self.server, self.folder / "data")
        return [change.kind for change in changes]

    def refusals(self, path: Path) -> bool:
        """Whether an incomplete dump is refused, as it has to be."""
        try:
            self.load(path)
        except (SourceUnusable, DatasetBuildFailed):
            return True
        return False

    def clean(self) -> None:
        """Remove what was loaded before."""
        shutil.rmtree(self.folder / "source", ignore_errors=True)
        (self.folder / "source").unlink(missing_ok=True)
        if self.engine == "postgres":
            listed = (
                "SELECT quote_ident(datname) FROM pg_database WHERE NOT datistemplate AND "
                "datname <> 'postgres'"
            )
            for (name,) in rows(self.server, listed, database="postgres"):
                execute(self.server, f"DROP DATABASE {name} WITH (FORCE)", database="postgres")
            roles = (
                "SELECT quote_ident(rolname) FROM pg_roles WHERE rolname !~ '^pg_' AND rolname "
                "<> 'dbbench'"
            )
            for (name,) in rows(self.server, roles, database="postgres"):
                execute(self.server, f"DROP ROLE {name}", database="postgres")
            execute(self.server, "CREATE DATABASE dbbench", database="postgres")
        else:
            for (name,) in rows(self.server, "SHOW DATABASES", database=""):
                if name not in ("mysql", "sys", "information_schema", "performance_schema"):
                    quoted = name.replace("`", "``")
                    execute(self.server, f"DROP DATABASE `{quoted}`", database="")
            execute(self.server, "CREATE DATABASE dbbench", database="")


@contextlib.contextmanager
def loading(engine: str) -> Iterator[Loader]:
    """A running server in a folder that its account can enter."""
    with servers.open_folder() as folder:
        where = servers.place(engine, folder)
        ENGINES[engine].create(folder / "data", where)
        with servers.serving(engine, folder / "data", where) as server:
            yield Loader(engine, folder, server)


def cuts(path: Path, to: Path) -> Iterator[tuple[Path, str]]:
    """Copies of the dump of which a file, or the dump itself, ends at a random byte; with that file
    and byte.
    """
    random_ = random.Random(f"{path.name}")
    for _ in range(CUTS):
        shutil.rmtree(to, ignore_errors=True)
        if path.is_dir():
            shutil.copytree(path, to)
            whole = random_.choice([file for file in sorted(to.iterdir()) if file.stat().st_size])
        else:
            to.mkdir()
            whole = Path(shutil.copy(path, to))
        os.truncate(whole, size := random_.randrange(whole.stat().st_size))
        yield to if path.is_dir() else whole, f"{whole.name} at {size}"


def with_line(
    path: Path,
    share: float,
    line: str,
    beginning: str,
) -> tuple[Path, int]:
    """A copy of the script with one more line, before a line that begins so; and the number of that
    line.
    """
    lines = [f"{line}\n" for line in path.read_text(encoding="latin-1").split("\n")[:-1]]
    places = [number for number, text in enumerate(lines) if re.match(beginning, text)]
    at = places[int(share * (len(places) - 1))]
    changed = path.with_name(f"changed-{path.name}")
    changed.write_text("".join([*lines[:at], line + "\n", *lines[at:]]), encoding="latin-1")
    return changed, at + 1


def with_link(copy: Path, name: str, target: Path) -> None:
    """Replace a file by a link."""
    (copy / name).unlink(missing_ok=True)
    (copy / name).symlink_to(target)
