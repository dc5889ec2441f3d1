from dataclasses import dataclass
from pathlib import Path

import pytest

from dbbench.errors import FileUnreadable, PlanInvalid
from dbbench.errors.similar_names import did_you_mean
from dbbench.plan import tomlfile
from dbbench.plan.tomlfile import convert, read

TEXT = '''\
name = "x"   # [not] = a key
fs_setups = ["a", { use = "b", label = "c" },
   "d",
]
text = """
[not.a.table]
k = 1
"""
dotted.key = 2024
[[engine]]
name = 'p'
[engine.settings]
a = "1"
[[engine]]
"quoted.key" = { x = [1, 2], y.z = 3 }
[last]
'''


@dataclass(frozen=True)
class Inner:
    size: int = 1


@dataclass(frozen=True)
class Outer:
    name: str
    inner: tuple[Inner, ...] = ()
    either: dict[str, int] | tuple[str, ...] = ()


def written(tmp_path: Path, text: str) -> tomlfile.Document:
    """A document of that text, in plan.toml."""
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return read(path)


def test_every_key_has_its_line(tmp_path: Path) -> None:
    """The line of a key is where a person finds it, in whatever way of TOML it is written, also in
    a file from Windows; a flaw of something that is missing points at what should have it.
    """
    document = written(tmp_path, TEXT)
    lines = {
        ("name",): 1,
        ("fs_setups", 0): 2,
        ("fs_setups", 1, "label"): 2,
        ("fs_setups", 2): 3,
        ("text",): 5,
        ("dotted", "key"): 9,
        ("engine", 0, "name"): 11,
        ("engine", 0, "settings", "a"): 13,
        ("engine", 1): 14,
        ("engine", 1, "quoted.key", "y", "z"): 15,
        ("last",): 16,
    }
    assert lines.items() <= document.lines.items()
    assert document.where(("engine", 1, "name")).endswith(":14")
    assert written(tmp_path, '\ufeffa = 1\r\nb = """\r\n\r\n"""\r\n').lines[("b",)] == 2


def test_all_flaws_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    """A second error is reported together with the first. A misspelt key that is then missing is one
    error, as is a value that fits no member of a union.
    """
    document = written(tmp_path, 'nam = "x"\ninner = [{ size = "big" },\n { sise = 2 }]\n')
    assert convert(document, Outer, document.data) is None
    with pytest.raises(PlanInvalid) as caught:
        document.finish()
    lines = caught.value.evidence.splitlines()
    assert "has 3 errors" in lines[0]
    assert "plan.toml:1" in lines[1] and 'unknown key "nam"; did you mean "name"?' in lines[1]
    assert "plan.toml:2" in lines[2] and '"size"' in lines[2]
    assert "plan.toml:3" in lines[3] and 'did you mean "size"?' in lines[3]
    document = written(tmp_path, 'name = "x"\neither = 3\n')
    convert(document, Outer, document.data)
    assert [text for _, text in document.flaws] == [
        '"either" must be a table in { } or a list in [ ]'
    ]


def test_several_keys_are_missing_beside_an_unknown_one(tmp_path: Path) -> None:
    """None of them is similar to it, so that all are named."""

    @dataclass(frozen=True)
    class Needed:
        title: str
        driver: str

    document = written(tmp_path, "bla = 3\n")
    assert convert(document, Needed, document.data) is None
    assert [text.partition(";")[0] for _, text in document.flaws] == [
        'unknown key "bla"',
        '"title" is missing',
        '"driver" is missing',
    ]


def test_what_cannot_be_read_is_an_error_with_an_id(tmp_path: Path) -> None:
    """A missing file, a folder, bytes that are no text; tomllib's own complaint has file:line in
    front.
    """
    with pytest.raises(FileUnreadable):
        read(tmp_path / "none.toml")
    with pytest.raises(FileUnreadable):
        read(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'a = 1\nb = "\xe9"')
    with pytest.raises(PlanInvalid, match=r"latin\.toml:2  the text is not UTF-8"):
        read(tmp_path / "latin.toml")
    with pytest.raises(PlanInvalid, match=r"plan\.toml:2  invalid TOML"):
        written(tmp_path, "a = 1\nb = = 2\n")


@pytest.mark.parametrize("text", ["a = 4GiB", "a = { b = 128MB }", "a = [10s, 20s]"])
def test_a_unit_without_quotes_is_reported(text: str, tmp_path: Path) -> None:
    """The message of TOML would be about what follows the number."""
    with pytest.raises(PlanInvalid, match=r"need quotes|quotes of a text"):
        written(tmp_path, text)


def test_did_you_mean_names_the_nearest_or_the_few_there_are() -> None:
    """A near word is suggested; without one, a short list is."""
    assert did_you_mean("clints", ["clients", "scale"]) == '; did you mean "clients"?'
    assert did_you_mean("zzz", ["b", "a"]) == "; known: a, b"
    assert did_you_mean("zzz", [f"name{n}" for n in range(30)]) == ""
