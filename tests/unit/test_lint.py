"""The project's own rules for the source (tests/lint.py)."""

from tests.lint import avoided, shells


def test_an_avoided_phrase_is_recognized() -> None:
    """In messages with fields and in public docstrings; not in the docstring of a private function."""
    text = (
        'raise E(f"{x} stands " "twice")\ndef f():\n    """Nobody, or somebody."""\ndef _f():\n  '
        '  """nobody"""\n'
    )
    assert [found.split(": ")[0] for found in avoided("a.py", text)] == ["a.py:1", "a.py:3"]
    assert [found.split(": ")[0] for found in avoided("a.md", "a\nThe path is no folder.\n")] == [
        "a.md:2"
    ]


def test_a_shell_with_a_command_line_is_recognized() -> None:
    """Not a shell as an argument of another program."""
    text = (
        'run(["sh", "-c", line])\nrun(["bash", "-c", f"{x}"])\nrun(["env", "sh", "-c", line])\n'
        'run(["sh"])\n'
    )
    assert shells("a.py", text) == ["a.py:1: a shell", "a.py:2: a shell"]
