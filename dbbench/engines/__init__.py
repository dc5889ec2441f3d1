"""The engines: private database servers, and `files`, which is none.

A new one is one module that satisfies `port.Engine`, and a line here.
"""

from __future__ import annotations

from typing import Final

from dbbench.engines import files, mariadb, mysql, postgres
from dbbench.engines.port import Engine

ENGINES: Final[dict[str, Engine]] = {"postgres": postgres, "mariadb": mariadb, "mysql": mysql, "files": files}

SERVERLESS: Final = frozenset({files.NAME})  # their loads work on files themselves
