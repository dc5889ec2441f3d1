"""A server of the user's own that runs: read through its socket, never changed."""

from dbbench.live.connecting import Live, reading, sockets
from dbbench.live.facts import Facts, facts_of

__all__ = ["Facts", "Live", "facts_of", "reading", "sockets"]
