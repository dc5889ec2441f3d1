"""Files of a source: what leads out of it, and what ends too early, is refused."""

import errno
import io
import json
import os
import tarfile
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, Final

import pytest

from dbbench.datasets import manifest, sources
from dbbench.datasets.manifest import Golden
from dbbench.datasets.sources import postgres_copies, safe_files
from dbbench.datasets.sources.postgres_dumps import PostgresScript
from dbbench.errors import DatasetBuildFailed, FilesystemFull, SourceRefused, SourceUnusable
from dbbench.model import Dataset
from dbbench.run import worker
from dbbench.run.workdir import WorkDir
from tests.support.dump_texts import DUMP
from tests.support.files import write_file

SECRET: Final = "secret\n"


def tar_of(path: Path, *members: tuple[str, bytes, str]) -> Path:
    """A tar file with members (type, name, content or target)."""
    with tarfile.open(path, "w") as tar:
        for name, type_, content in members:
            head = tarfile.TarInfo(name)
            head.type = type_
            if type_ == tarfile.REGTYPE:
                head.size = len(content)
                tar.addfile(head, io.BytesIO(content.encode()))
            else:
                head.linkname = content
                tar.addfile(head)
    return path


@pytest.mark.parametrize(
    "member",
    [
        ("postgresql.conf", tarfile.SYMTYPE, "VICTIM"),
        ("pg_tblspc/16384", tarfile.SYMTYPE, "FOLDER"),
        ("base/1", tarfile.LNKTYPE, "VICTIM"),
        ("../victim", tarfile.REGTYPE, "planted"),
        ("/VICTIM", tarfile.REGTYPE, "planted"),
        ("inner/../../victim", tarfile.REGTYPE, "planted"),
        ("base/null", tarfile.CHRTYPE, ""),
        ("base/fifo", tarfile.FIFOTYPE, ""),
    ],
)
def test_a_tar_file_writes_only_beneath_its_target(
    tmp_path: Path, member: tuple[str, bytes, str]
) -> None:
    """Links, devices and paths that lead out are refused by name; the file outside is unchanged."""
    victim = write_file(tmp_path / "victim", SECRET)
    (target := tmp_path / "copy").mkdir()
    name, kind, content = member
    content = content.replace("VICTIM", str(victim)).replace("FOLDER", str(tmp_path))
    tar = tar_of(tmp_path / "base.tar", (name.replace("VICTIM", str(victim)[1:]), kind, content))
    with pytest.raises(SourceRefused, match=r"leads out of|is a link|special file"):
        safe_files.unpack(tar, target)
    assert victim.read_text() == SECRET
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base.tar", "copy", "victim"]


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".bz2"])
def test_a_truncated_tar_file_is_refused(tmp_path: Path, suffix: str) -> None:
    """At every 100th byte, whatever its compression; the whole one is unpacked."""
    names = [(f"base/{number}", tarfile.REGTYPE, f"{number}" * 700) for number in range(3)]
    plain = tar_of(tmp_path / "plain", *names).read_bytes()[:6144]
    mode = {"": "w:", ".gz": "w:gz", ".xz": "w:xz", ".bz2": "w:bz2"}[suffix]
    with (
        tarfile.open(tmp_path / "whole", mode) as tar,
        tarfile.open(fileobj=io.BytesIO(plain)) as members,
    ):
        for member in members:
            tar.addfile(member, members.extractfile(member))
    whole = (tmp_path / "whole").read_bytes()
    packed = write_file(tmp_path / f"base.tar{suffix}", whole)
    safe_files.unpack(packed, tmp_path)
    assert (tmp_path / "base/2").read_text() == "2" * 700
    for size in range(0, min(len(whole) - 1, 5632), 100 if suffix == "" else 7):
        packed.write_bytes(whole[:size])
        with pytest.raises(SourceUnusable):
            safe_files.unpack(packed, tmp_path)


def test_a_directory_is_copied_without_following_links(tmp_path: Path) -> None:
    """A link to a file or a directory, and a FIFO, are refused by name, unless they are left
    out.
    """
    write_file(tmp_path / "outside/key", SECRET)
    for number, plant in enumerate(("file", "folder", "fifo")):
        source = tmp_path / f"source{number}"
        write_file(source / "base/1", "1")
        if plant == "fifo":
            os.mkfifo(source / "base/bad")
        else:
            (source / "base/bad").symlink_to(
                tmp_path / "outside" / ("key" if plant == "file" else "")
            )
        with pytest.raises(SourceRefused, match="base/bad is a"):
            safe_files.copy_tree(source, tmp_path / f"copy{number}")
        safe_files.copy_tree(
            source,
            tmp_path / f"clean{number}",
            lambda path: path == PurePosixPath("base/bad"),
        )
        assert (tmp_path / f"clean{number}/base/1").read_text() == "1"
        assert SECRET not in "".join(path.read_text() for path in tmp_path.glob("c*/base/*"))


def test_the_log_of_a_cluster_may_be_elsewhere(tmp_path: Path) -> None:
    """Its link is followed to files of the log alone, and only if the directory belongs to the
    owner of the cluster.
    """
    (source := tmp_path / "pg").mkdir()
    for name in ("base", "pg_tblspc"):
        (source / name).mkdir()
    (log := tmp_path / "log").mkdir()
    (log / "0000000100000000000000AB").write_text("log")
    (log / "id_rsa").write_text(SECRET)
    (source / "pg_wal").symlink_to(log)
    postgres_copies._copy(source, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy/pg_wal").iterdir()] == [
        "0000000100000000000000AB"
    ]
    if os.geteuid() == 0:
        os.chown(log, 65534, 65534)
        with pytest.raises(SourceRefused, match="does not belong to the owner"):
            postgres_copies._copy(source, tmp_path / "second")


def test_a_backup_is_compared_with_its_manifest(tmp_path: Path) -> None:
    """Names and sizes; what a copy leaves out is not missed."""
    listed = [
        {"Path": "base/1", "Size": 3},
        {"Path": "base/2", "Size": 3},
        {"Path": "postmaster.opts", "Size": 9},
    ]
    (tmp_path / "backup_manifest").write_text(json.dumps({"Files": listed}))
    (tmp_path / "base").mkdir()
    for name in ("1", "2"):
        (tmp_path / "base" / name).write_text("abc")
    postgres_copies.check_manifest(tmp_path, tmp_path)
    (tmp_path / "base/2").write_text("ab")
    with pytest.raises(SourceUnusable, match="base/2 of the backup"):
        postgres_copies.check_manifest(tmp_path, tmp_path)


def test_a_golden_copy_leads_nowhere_else(tmp_path: Path) -> None:
    """A manifest with a path that leads out, and a directory that was replaced by a link, are no
    golden copy.
    """
    write_file(tmp_path / "outside/1", SECRET)
    for path in ("../../outside/1", str(tmp_path / "outside/1"), "base/1"):
        data = tmp_path / "copy/data"
        data.mkdir(parents=True, exist_ok=True)
        entry = manifest.Entry(path, "file", 0o600, len(SECRET), 0)
        whole = manifest.Manifest("copy", Dataset("none"), 7, None, (entry,))
        manifest.save(tmp_path / "copy", whole)
        if path == "base/1":
            (data / "base").symlink_to(tmp_path / "outside")
            with pytest.raises(OSError, match='"base" in its path is a symbolic link'):
                manifest.open_entry(Golden(tmp_path / "copy", whole), entry)
        else:
            assert manifest.load(tmp_path / "copy") is None


@pytest.mark.parametrize(
    ("head", "what", "remedy"),
    [
        (b"PK\x03\x04", "zip", "unzip"),
        (b"\x89LZO\0", "lzop", "lzop -d"),
        (b"7z\xbc\xaf\x27\x1c", "7-Zip", "7z x"),
        ("\ufeff-- MySQL dump 10.13".encode("utf-16-le"), "UTF-16", "iconv"),
        (
            b"CREATE TABLE t (a int);\nINSERT INTO t VALUES (1);\n",
            "SQL script without the comments",
            "--compact",
        ),
        (
            b"-- MySQL dump 10.13\n\nCREATE TABLE t",
            "closing comment",
            "Make the dump or backup again",
        ),
        (
            b"-- PostgreSQL database dump\n\nCOPY t FROM stdin;\n1\n",
            "closing comment",
            "Make the dump or backup again",
        ),
    ],
)
def test_what_a_file_is_and_what_helps(
    tmp_path: Path,
    head: bytes,
    what: str,
    remedy: str,
) -> None:
    """Each with the command, or with what to do when the dump is made."""
    path = write_file(tmp_path / "shop's; dump.sql", head)
    with pytest.raises(SourceUnusable, match=what) as refused:
        sources.look(path)
    assert remedy in (refused.value.remedy or "")


@pytest.mark.parametrize(
    ("version", "writer", "reader"),
    [
        (14, "15.18", 0),
        (15, "16.3", 16),
        (16, "17.6", 17),
        (16, "18rc1", 17),
        (99, "23.1", 23),
        (99, "24beta1", 24),
    ],
)
def test_an_archive_reports_which_pg_restore_can_read_it(
    tmp_path: Path,
    version: int,
    writer: str,
    reader: int,
) -> None:
    """By the version of its format; one that is later than all known ones needs the version of its
    writer.
    """

    def number(value: int) -> bytes:
        return b"\0" + value.to_bytes(4, "little")

    def text(value: str) -> bytes:
        return number(len(value)) + value.encode()

    head = (
        b"PGDMP"
        + bytes([1, version, 0, 4, 8, 1])
        + (b"\1" if version >= 15 else number(6))
        + number(1) * 7
    )
    path = write_file(tmp_path / "shop.dump", head + text("shop") + text("15.14") + text(writer))
    source = sources.look(path)
    assert (source.version, source.reader) == ("15.14", reader)
    if reader > 15:
        with pytest.raises(SourceUnusable, match=f"pg_restore {reader} or later"):
            sources.fits(source, "postgres", "15.18", 8192)
    else:
        sources.fits(source, "postgres", "15.18", 8192)


def test_dumps_from_windows(tmp_path: Path) -> None:
    """A byte order mark and line ends of two characters."""
    mark = b"\xef\xbb\xbf"
    dump = DUMP.replace(b"\n", b"\r\n")
    read = PostgresScript(io.BytesIO(mark + dump), lambda _: False, lambda _: None, "dbbench")
    first, *_ = read
    assert first == b"--\r\n" and list(read.tables.values()) == [2]
    (path := tmp_path / "shop.sql").write_bytes(
        mark + b"-- MySQL dump 10.13\r\n\r\n-- Dump completed on 2026-11-21\r\n"
    )
    assert sources.look(path).form == "mysqldump"


def test_an_error_while_a_dataset_is_built_reaches_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is, as an event with evidence and remedy; errors of dbbench keep their kind."""
    cell: Any = SimpleNamespace(
        workload=SimpleNamespace(name="scan"), engine=SimpleNamespace(name="mariadb")
    )
    run = SimpleNamespace(cell=lambda _id: cell, plan=SimpleNamespace(deadlines={}))
    folder: Any = SimpleNamespace(run=run)
    for raised, kind in (
        (ValueError("no apostrophe"), DatasetBuildFailed),
        (OSError(errno.ENOSPC, "full", "/x"), FilesystemFull),
        (SourceRefused("a link"), SourceRefused),
    ):

        def fail(*_given: object, error: Exception = raised) -> None:
            raise error

        monkeypatch.setattr(worker.restore, "ensure_golden", fail)
        with pytest.raises(kind) as told:
            worker._build_golden(
                folder,
                worker.Request("golden", "", "", item="id"),
                WorkDir(tmp_path, tmp_path),
                lambda _event: None,
            )
        assert str(raised) in told.value.evidence
