"""run.json: made before the first trial, extended when a block is repeated; one process at a time works on a run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dbbench.catalog import NAME
from dbbench.errors import ResultDamaged, RunLocked, RunMissing
from dbbench.model import CeilingFacts, Run, TrialSpec, plain
from dbbench.store.files import exclusive, read_summed, sync, write_summed, write_text, writing

_RUN: TypeAdapter[Run] | None = None
CEILING = "ceiling.json"


def create_run(results: Path, run: Run, plan_text: str) -> Path:
    """Make the run's folder with plan.toml and run.json, whole or not at all; the folder. It must not exist yet.

    The hidden folder of a process that was killed while it made one of this name is removed; not that of one which is
    at it.
    """
    folder, making = results / run.name, results / f".{run.name}.{os.getpid()}.new"
    for left in results.glob(f".{run.name}.*.new"):
        maker = left.name.split(".")[-2]
        if left == making or not Path("/proc", maker).exists():
            shutil.rmtree(left, ignore_errors=True)
    try:
        with writing(folder):
            (making / "trials").mkdir(parents=True)
        write_text(making / "plan.toml", plan_text)
        save_spec(making, run)
        with writing(folder):
            making.rename(folder)
            sync(results)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def folders(results: Path) -> list[Path]:
    """The run folders in it, by name; a hidden one is still being made, and none."""
    return sorted(path.parent for path in results.glob("[!.]*/run.json"))


def save_spec(folder: Path, run: Run) -> None:
    """Write run.json, whole or not at all."""
    write_summed(folder / "run.json", plain(run))


def written_spec(run: Run) -> bytes:
    """run.json as bytes, to be sent."""
    return json.dumps(plain(run), ensure_ascii=False, allow_nan=False).encode("utf-8")


def load_spec(folder: Path) -> Run:
    """The content of run.json. RunMissing where there is none, ResultDamaged where it cannot be read."""
    path = folder / "run.json"
    try:
        run = parsed_spec(read_summed(path))
    except FileNotFoundError:
        raise RunMissing(f"{folder} holds no run.json", remedy="dbbench list") from None
    except (OSError, ValidationError, ValueError) as error:
        raise ResultDamaged(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    for name in (run.name, *(spec.id for spec in run.order)):
        if not NAME.fullmatch(name):  # they become names of files and folders
            raise ResultDamaged(f"{path} cannot be read: {name!r} is no name of a run or trial")
    return run


def parsed_spec(written: bytes) -> Run:
    """What `written_spec` has made. ValidationError."""
    global _RUN
    if _RUN is None:  # it takes tens of ms to make
        _RUN = TypeAdapter(Run)
    return _RUN.validate_json(written)


def finished(folder: Path) -> set[str]:
    """Ids of the trials that have a result. One look at the folder: a run may have thousands."""
    try:
        with os.scandir(folder / "trials") as entries:
            return {entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()}
    except FileNotFoundError:
        return set()


def pending(folder: Path, run: Run) -> list[TrialSpec]:
    """The trials that have no result yet, in the recorded order."""
    done = finished(folder)
    return [spec for spec in run.order if spec.id not in done]


def find_unfinished(results: Path, plan_sha256: str) -> Path | None:
    """The newest run of the same plan that has trials left to do, or None."""
    mine = [
        (run.created, folder) for folder, run in _specs(results, plan_sha256) if drivable(run) and pending(folder, run)
    ]
    return max(mine)[1] if mine else None


def drivable(run: Run) -> bool:
    """Whether a plain `dbbench run` may go on with it: not a fleet's, not merged from others, not a share of a plan."""
    return not run.hosts and len({spec.block for spec in run.order}) >= run.plan.blocks


def _specs(results: Path, plan_sha256: str) -> Iterator[tuple[Path, Run]]:
    """The runs of that plan. Others are known by their bytes: reading each of hundreds whole takes seconds."""
    for folder in folders(results):
        with contextlib.suppress(ResultDamaged, RunMissing, OSError):
            if plan_sha256.encode() in (folder / "run.json").read_bytes():
                run = load_spec(folder)
                if run.plan_sha256 == plan_sha256:
                    yield folder, run


def save_ceiling(folder: Path, ceiling: CeilingFacts) -> None:
    """Write ceiling.json: what the bare device could do before the run."""
    write_summed(folder / CEILING, plain(ceiling))


def load_ceiling(folder: Path) -> CeilingFacts | None:
    """The content of ceiling.json; None where the device has not been measured. ResultDamaged."""
    path = folder / CEILING
    try:
        return TypeAdapter(CeilingFacts).validate_json(read_summed(path))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError, ValueError) as error:
        raise ResultDamaged(
            f"{path} cannot be read: {str(error).splitlines()[0]}",
            remedy=f"Without it the device is measured again:  rm {path}",
        ) from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep others off this run while the block works on it. RunLocked says who holds it."""
    with exclusive(
        folder / ".lock",
        lambda pid: RunLocked(
            f"{folder.name} is being worked on by process {pid}",
            effect="Nothing was changed.",
            remedy="Wait for it, or stop it with Ctrl-C in its terminal.",
        ),
    ):
        yield
