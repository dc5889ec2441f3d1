"""The engines: private database servers. A new one is one module that satisfies `port.Engine`, and a line here."""

from __future__ import annotations

from typing import Final

from dbbench.engines import mariadb, mysql, postgres
from dbbench.engines.port import Engine

ENGINES: Final[dict[str, Engine]] = {"postgres": postgres, "mariadb": mariadb, "mysql": mysql}
