"""A load generator on another host, reached by ssh.

`session` talks to `agent`, which runs on that host. `client` is the load generator of one trial, and checks that host
before a run (`lacking`). `network` is how it reaches the server, with TLS and a password.
"""

from __future__ import annotations

from dbbench.remote.client import Client, RemoteProgram, lacking
from dbbench.remote.network import Network

__all__ = ["Client", "Network", "RemoteProgram", "lacking"]
