"""The entry point of `dbbench` and `python -m dbbench`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit status."""
    from dbbench.cli import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
