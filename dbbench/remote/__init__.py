"""A load generator on another host, reached by ssh: `session` speaks to `agent`, which runs there; `client` is one
trial's; `network` is how the server is reached from there, over TLS and with a password; `before` looks at all of it
before a run."""

from __future__ import annotations

from dbbench.remote.before import lacking
from dbbench.remote.client import Client, Program
from dbbench.remote.network import Network

__all__ = ["Client", "Network", "Program", "lacking"]
