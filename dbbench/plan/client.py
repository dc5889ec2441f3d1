"""What types alone do not say of `[client]`: an address of this machine, loads that can come from another host."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from dbbench.drivers import AWAY
from dbbench.model import ClientSpec, EngineSpec, Plan, Workload
from dbbench.tomlfile import Document, Key

_DESTINATION: Final = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._@%:-]*")  # of ssh: a first "-" would be an option


def check_client(
    document: Document, plan: Plan | None, engines: Mapping[Key, EngineSpec], workloads: Iterable[tuple[Key, Workload]]
) -> None:
    """Note all flaws of `client`, and of what is beside it."""
    if "client" not in document.data:
        return
    if plan is not None and plan.client is not None:
        _check_spec(document, plan.client)
    for key, workload in workloads:
        if workload.driver not in AWAY:
            document.flaw((*key, "name"), f'the load of "{workload.name}" is made by {workload.driver}, which works '
                                          f"here: with [client] only {' and '.join(AWAY)} can")  # fmt: skip
        elif workload.during:
            document.flaw((*key, "name"), f'"{workload.name}" sends a statement beside its load, which goes from here')
    for key, engine in engines.items():
        if engine.cpus_client is not None:
            document.flaw((*key, "cpus_client"), '"cpus_client" says nothing: the load generator is on another host')
    if "age_engine" in document.data:
        document.flaw(("age_engine",), '"age_engine" drives its load from here: leave out [client]')


def _check_spec(document: Document, client: ClientSpec) -> None:
    if not _DESTINATION.fullmatch(client.host):
        document.flaw(("client", "host"), f'"host" should be what ssh takes, as "user@db2", not "{client.host}"')
    try:
        address = ipaddress.ip_address(client.address)
    except ValueError:
        document.flaw(
            ("client", "address"), f'"address" should be an IP address of this machine, not "{client.address}"'
        )
    else:
        if address.is_unspecified or address.is_multicast:
            document.flaw(("client", "address"), f'"address" should be one address, not "{client.address}": the server '
                                                 "listens nowhere else")  # fmt: skip
        elif address.is_loopback:
            document.flaw(("client", "address"), f'no other host reaches this one by "{client.address}"')
    if not 1024 <= client.port <= 65535:
        document.flaw(("client", "port"), f'"port" should be 1024 to 65535, not {client.port}')
    if not Path(client.password_file).is_absolute():
        document.flaw(("client", "password_file"), '"password_file" should be a full path')
