"""A terminal: runs a command on a pseudo-terminal of a given size, and interprets what it draws."""

import fcntl
import io
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

SIZES = ((80, 24), (120, 40))
_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


class Screen:
    """The lines that were written so far, with the cursor. It knows the sequences that rich uses."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self.lines = [""]
        self.row = 0
        self.column = 0
        self.wrapped = 0  # lines that were longer than the screen is wide
        self.cursor_visible = True
        self.written = ""

    def write(self, text: str) -> None:
        """Interpret the text; sequences are not split between two calls."""
        self.written += text
        position = 0
        for match in _SEQUENCE.finditer(text):
            self._put(text[position : match.start()])
            self._obey(match[1], match[2])
            position = match.end()
        self._put(text[position:])

    @property
    def colored(self) -> bool:
        return bool(_COLOR.search(self.written))

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)

    def _put(self, text: str) -> None:
        for character in text:
            if character == "\r":
                self.column = 0
            elif character == "\n":
                self._down()
            elif character >= " ":
                if self.column == self.columns:
                    self.wrapped += 1
                    self.column = 0
                    self._down()
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
                self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")

    def _obey(self, argument: str, letter: str) -> None:
        if letter == "A":  # not above the first row of the screen
            self.row = max(self.row - int(argument or 1), len(self.lines) - self.rows, 0)
        elif letter == "K":
            self.lines[self.row] = "" if argument == "2" else self.lines[self.row][: self.column]
        elif letter in "hl" and argument == "?25":
            self.cursor_visible = letter == "h"
        else:
            assert letter == "m", f"unknown sequence {argument}{letter}"


class WideStream(io.StringIO):
    """Text that is written for a terminal of that width."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self._other_end, self._terminal = os.openpty()
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))

    def fileno(self) -> int:
        return self._terminal

    def isatty(self) -> bool:
        return True

    def close(self) -> None:
        os.close(self._terminal)
        os.close(self._other_end)
        super().close()


class Terminal:
    """A pseudo-terminal with its screen. `program` is the end that a program writes to."""

    def __init__(self, columns: int, rows: int) -> None:
        self.screen = Screen(columns, rows)
        self._ours, self.program = os.openpty()
        fcntl.ioctl(self.program, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
        self._left = b""

    def idle(self, seconds: float) -> bool:
        """Return whether nothing is written for so long."""
        return not select.select([self._ours], [], [], seconds)[0]

    def read(self, within_s: float) -> bool:
        """Show what was written within that time; return False if every program has closed the
        terminal.
        """
        if self.idle(within_s):
            return True
        try:
            piece = os.read(self._ours, 65536)
        except OSError:  # EIO: closed
            return False
        whole = self._left + piece
        self._left = b""
        if cut := re.search(rb"(\x1b(\[[0-9;?]*)?|[\xc0-\xff][\x80-\xbf]{0,2})$", whole):
            characters = whole[cut.start() :]
            if characters[:1] == b"\x1b" or not _complete(characters):
                whole = whole[: cut.start()]
                self._left = characters
        self.screen.write(whole.decode())
        return True

    def close(self) -> None:
        """Hang up, as a lost connection does."""
        for fd in (self.program, self._ours):
            if fd >= 0:
                os.close(fd)
        self.program = self._ours = -1


def _complete(characters: bytes) -> bool:
    try:
        characters.decode()
    except UnicodeDecodeError:
        return False
    return True


def dbbench_on(
    terminal: Terminal,
    words: list[str],
    folder: Path,
    env: Mapping[str, str],
    seen: Callable[[Screen, int], bool] = lambda _screen, _pid: True,
    within_s: float = 1200.0,
) -> int:
    """Run dbbench in the folder, as in a shell on the terminal, with colours; return its exit
    status.

    `seen(screen, pid)` is called when a drawing is complete: nothing followed for a moment. If
    it returns False, the terminal is hung up.
    """
    clean = {
        name: value for name, value in env.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")
    }
    child = subprocess.Popen(
        [sys.executable, "-m", "dbbench", *words],
        cwd=folder,
        env={**clean, "TERM": "xterm-256color"},
        stdin=terminal.program,
        stdout=terminal.program,
        stderr=terminal.program,
        start_new_session=True,
    )
    os.close(terminal.program)
    terminal.program = -1
    until = time.monotonic() + within_s
    try:
        while terminal.read(1.0):
            assert time.monotonic() < until, terminal.screen.text
            if terminal.idle(0.03) and not seen(terminal.screen, child.pid):
                terminal.close()
                break
        return child.wait(within_s)
    finally:
        child.kill()
        child.wait()
