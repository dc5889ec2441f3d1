"""The power-cut lab: what of acknowledged commits is still there when the power goes, and whether it starts again.

A server works on a disk of the lab's own (`disk`), which logs every write and flush (`log`); from the log any number
of disks are made as a power cut would have left them (`aims`, `images`), and each is recovered and looked at
(`recovery`) by what a witness outside the server knows (`witness`). Controls that must lose show that the lab would see
a loss (`controls`); what may be said of n cuts is arithmetic (`statement`).
"""

from __future__ import annotations

from dbbench.powercut.starting import Order, examined, unavailable

__all__ = ["Order", "examined", "unavailable"]
