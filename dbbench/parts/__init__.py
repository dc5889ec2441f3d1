"""The parts of a trial's road, bound to one run, cell and place: `real_parts`. Tests hand the road other ones."""

from __future__ import annotations

from dbbench.parts.port import Parts
from dbbench.parts.real import golden_of, real_parts
from dbbench.parts.room import Permit, Room

__all__ = ["Parts", "Permit", "Room", "golden_of", "real_parts"]
