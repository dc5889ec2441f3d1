import dataclasses
import zlib
from pathlib import Path
from typing import Any

import pytest

from dbbench.datasets import generated, golden
from dbbench.datasets.golden import Recipe
from dbbench.drivers import statements
from dbbench.engines import profile_of
from dbbench.errors import PlanInvalid
from dbbench.model import Dataset, EngineSpec, Scalar, Setting
from dbbench.model.base import PACKED


def test_a_default_that_is_written_out_is_the_same_dataset() -> None:
    """Datasets that come out equal have equal parameters, in whatever words they were asked for. A
    tablespace and a large table beside the load are part of those that name them; others keep
    their keys.
    """

    def filled(kind: Any, engine: str, **parameters: Scalar) -> Dataset:
        return generated.fill_in(Dataset(kind, parameters), engine)

    assert filled("pgbench", "postgres") == filled("pgbench", "postgres", fillfactor=100, scale=1)
    by_size = filled("clone-tables", "mysql", table_bytes="1MiB")
    assert by_size == filled("clone-tables", "mysql", rows=by_size.parameters["rows"])
    assert by_size.parameters["rows"] == 2**20 // generated.CLONE_ROW_BYTES
    assert "tablespace" not in filled("clone-tables", "postgres").parameters
    assert filled("clone-tables", "postgres", tablespace="fast").parameters["tablespace"] == "fast"
    plain = filled("sysbench", "mariadb")
    large = filled("sysbench", "mariadb", large_bytes=2**30)
    assert "large_bytes" not in plain.parameters and plain == filled(
        "sysbench",
        "mariadb",
        large_bytes=0,
    )
    assert generated.size_bytes(large, "mariadb") - generated.size_bytes(plain, "mariadb") > 2**30


@pytest.mark.parametrize(
    ("dataset", "engine", "names"),
    [
        (Dataset("pgbench", {"scales": 3}), "postgres", "scales"),
        (Dataset("pgbench", {"scale": 3}), "mariadb", "mariadb"),
        (Dataset("pgbench", {"scale": 0}), "postgres", "scale"),
        (Dataset("sysbench", {"tables": "x"}), "mysql", "tables"),
        (Dataset("none", {"scale": 1}), "mysql", "scale"),
        (Dataset("clone-tables", {"tablespace": "fast"}), "mysql", "mysql does not support"),
        (Dataset("clone-tables", {"tablespace": "pg_fast"}), "postgres", "pg_fast"),
        (Dataset("clone-tables", {"tablespace": "fast; --"}), "postgres", "lower-case letters"),
    ],
)
def test_what_cannot_be_loaded_is_refused_by_name(
    dataset: Dataset,
    engine: str,
    names: str,
) -> None:
    """A parameter that is unknown or impossible, or a kind that the engine cannot hold, is an error
    of the plan.
    """
    with pytest.raises(PlanInvalid, match=names):
        generated.fill_in(dataset, engine)


def test_twice_the_rows_need_about_twice_the_bytes() -> None:
    """The estimate grows with the dataset, on top of what an empty server takes."""
    empty = generated.size_bytes(Dataset("none"), "postgres")
    one = generated.size_bytes(Dataset("pgbench", {"scale": 20}), "postgres") - empty
    two = generated.size_bytes(Dataset("pgbench", {"scale": 40}), "postgres") - empty
    assert two == pytest.approx(2 * one, rel=0.01)
    assert one > 20 * 14_000_000


def test_texts_are_seeded_and_compress_moderately() -> None:
    """The same seed gives the same texts; they compress like text, neither like zeros nor like
    noise.
    """
    pool = statements.pool(7)
    assert pool == statements.pool(7) != statements.pool(8)
    assert len(set(pool)) == statements.POOL_ROWS
    assert all(100 < len(text) <= 170 for text in pool)
    whole = "".join(pool).encode()
    assert 1.5 < len(whole) / len(zlib.compress(whole, 1)) < 4


def test_every_ingredient_changes_the_key() -> None:
    """A copy made by another program, version, dataset or setting is another copy."""
    small = Dataset("pgbench", {"scale": 1})
    fsync = {"fsync": Setting("off", "build")}
    base = Recipe(EngineSpec("postgres"), "15.18", "aa", small, fsync)
    others = [
        dataclasses.replace(base, engine=EngineSpec("mariadb")),
        dataclasses.replace(base, version="16.1"),
        dataclasses.replace(base, build="ab"),
        dataclasses.replace(base, dataset=Dataset("pgbench", {"scale": 2})),
        dataclasses.replace(base, settings={"fsync": Setting("on", "build")}),
    ]
    assert len({base.key, *(other.key for other in others)}) == 6
    same = dataclasses.replace(
        base, engine=EngineSpec("postgres", settings={"shared_buffers": "4GB"})
    )
    assert same.key == base.key  # a trial's settings do not make the bytes
    limited = dataclasses.replace(
        base, settings={**base.settings, "max_files_per_process": Setting(99, "plan")}
    )
    assert limited.key == base.key  # nor do the limits of the server that builds it
    assert base.key.startswith("postgres-15.18-pgbench-")


@pytest.mark.parametrize(
    ("cache", "xdg", "expected"),
    [
        ("/data/golden", "/data/cache", "/data/golden"),
        ("", "/data/cache", "/data/cache/dbbench/golden"),
        ("", "cache", "/home/ann/.cache/dbbench/golden"),
    ],
)
def test_the_cache_is_where_the_environment_says(
    cache: str,
    xdg: str,
    expected: str,
    environ: dict[str, str],
) -> None:
    """DBBENCH_CACHE, then the XDG cache, then ~/.cache; a relative XDG_CACHE_HOME is to be ignored.
    Its limit is a size as people write it.
    """
    for limit, size in ({"DBBENCH_CACHE_LIMIT": "80GiB"}, 80 * 2**30), ({}, 50 * 2**30):
        environ.pop("DBBENCH_CACHE_LIMIT", None)
        environ.update(limit)
        assert golden.size_limit() == size
    for name, value in (("DBBENCH_CACHE", cache), ("XDG_CACHE_HOME", xdg), ("HOME", "/home/ann")):
        environ[name] = value
    assert golden.cache_folder() == Path(expected)


def test_a_share_that_compresses_away_becomes_noise() -> None:
    """None of it at the one end of what was measured, all at the other, the nearest beyond; a part
    of the dataset.
    """
    for kind in PACKED:
        for engine in ("postgres", "mariadb", "mysql"):
            least, most = profile_of(engine).compressed[kind]
            assert [generated.noise(kind, engine, share) for share in (0.0, least, most, 1.0)] == [
                1,
                1,
                0,
                0,
            ]
            assert generated.noise(kind, engine, (least + most) / 2) == pytest.approx(0.5)
    asked = generated.fill_in(Dataset("sysbench", {"compressibility": 0.5}), "postgres")
    assert asked.parameters["compressibility"] == 0.5
    assert "compressibility" not in generated.fill_in(Dataset("sysbench"), "postgres").parameters
    for wrong in (1.5, -0.1, True, "much"):
        with pytest.raises(PlanInvalid, match="must be between 0 and 1"):
            generated.fill_in(Dataset("clone-tables", {"compressibility": wrong}), "mysql")
    with pytest.raises(PlanInvalid, match='no parameter "compressibility"'):
        generated.fill_in(Dataset("pgbench", {"compressibility": 0.5}), "postgres")


def test_a_link_to_a_server_is_that_server(tmp_path: Path) -> None:
    """A folder of programs may be one of symbolic links, as in Nix."""
    (program := tmp_path / "store/postgres").parent.mkdir()
    program.write_bytes(b"\x7fELF")
    (link := tmp_path / "bin/postgres").parent.mkdir()
    link.symlink_to(program)
    assert (
        golden._program_sum((str(link),), ("postgres",))
        == golden._program_sum((str(program),), ("postgres",))
        != ""
    )
