"""A load generator on another host: the keys of a plan, the access to the server, the messages."""

import dataclasses
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dbbench import plan
from dbbench.compare import conditions
from dbbench.engines import innodb, mariadb, postgres
from dbbench.engines.innodb_server import InnodbServer
from dbbench.engines.mysqld import Mysqld
from dbbench.engines.port import Place
from dbbench.errors import PlanInvalid
from dbbench.machine import cores
from dbbench.model import Cell, ClientFacts, ClientSpec, CoresFacts, EngineSpec, Plan
from dbbench.plan.planned_conditions import sentences
from dbbench.process import User
from dbbench.remote import Network
from dbbench.report.page.redaction import redactor
from dbbench.run.evaluate import fairness
from tests.support.plans import SHIPPED, plan_of
from tests.support.trials import trial

SPEC = ClientSpec("load@db2", "192.0.2.10", "/etc/dbbench.password")
FACTS = ClientFacts("load@db2", "db2", "192.0.2.20", "192.0.2.10", 15432, "sysbench 1.0.20", cpus=8)
PLAN = """
name = "p"
fs_setups = ["ext4", "xfs"]
{more}
[client]
{client}
[[engine]]
name = "postgres"
{engine}
[[engine]]
name = "mariadb"
[[workload]]
name = "{workload}"
[[workload]]
name = "sysbench-oltp-read-only"
"""
CLIENT = 'host = "load@db2"\naddress = "192.0.2.10"\npassword_file = "/etc/dbbench.password"'
BUNDLED = "pgbench-tpcb"


def loaded(
    tmp_path: Path,
    client: str = CLIENT,
    workload: str = BUNDLED,
    engine: str = "",
    more: str = "",
) -> Plan:
    """A plan with that `[client]`."""
    return plan_of(
        tmp_path, PLAN.format(client=client, workload=workload, engine=engine, more=more)
    )


def cells(tmp_path: Path, **written: str) -> dict[str, Cell]:
    """Its cells on ext4, by engine and workload."""
    found = plan.expand(loaded(tmp_path, **written), SHIPPED).cells
    return {
        f"{cell.engine.name} {cell.workload.name}": cell for cell in found if cell.arm == "ext4"
    }


def other(old: str, new: str) -> dict[str, str]:
    """Another `[client]`."""
    return {"client": CLIENT.replace(old, new)}


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (other('"load@db2"', '"-oProxyCommand=rm"'), '"host" must be a destination for ssh'),
        (other('"load@db2"', '"db2 rm"'), '"host" must be a destination for ssh'),
        (other('"192.0.2.10"', '"0.0.0.0"'), "must be a specific address"),
        (other('"192.0.2.10"', '"::"'), "must be a specific address"),
        (other('"192.0.2.10"', '"127.0.0.1"'), "which other hosts cannot connect to"),
        (other('"192.0.2.10"', '"db1"'), "must be an IP address of this machine"),
        (other('"/etc/dbbench.password"', '"password"'), "must be an absolute path"),
        (
            other('"/etc/dbbench.password"', '"/etc/dbbench.password"\nport = 80'),
            '"port" must be 1024 or more',
        ),
        (
            other('"/etc/dbbench.password"', '"/etc/dbbench.password"\npassword = "x"'),
            'unknown key "password"',
        ),
        (other('host = "load@db2"\n', ""), '"host" is missing'),
        (
            {"workload": "scan"},
            '"scan" cannot be combined with [client]: its driver scan runs only on this host',
        ),
        (
            {"workload": "copy-in"},
            '"copy-in" cannot be combined with [client]: its driver statements runs only',
        ),
        (
            {"workload": "drop-table"},
            '"drop-table" cannot be combined with [client]: it has a "during" statement',
        ),
        ({"engine": 'cpus_client = "3"'}, '"cpus_client" has no effect'),
    ],
)
def test_flaws_of_the_client_are_reported(
    tmp_path: Path,
    written: dict[str, str],
    told: str,
) -> None:
    """Before anybody is asked. What cannot come from another host is never driven from here in
    silence.
    """
    with pytest.raises(PlanInvalid) as caught:
        loaded(tmp_path, **written)
    assert told in caught.value.evidence


def test_plan_without_a_client_is_driven_from_here(tmp_path: Path) -> None:
    """Only a plan that asks for it opens a port."""
    text = PLAN.format(client="", workload=BUNDLED, engine="", more="").replace("[client]\n", "")
    asked = plan_of(tmp_path, text)
    found = plan.expand(asked, SHIPPED).cells
    assert {cell.client for cell in found} == {None}
    assert not any("network" in line for line in sentences(asked, found))


def test_plan_says_what_the_network_does_to_the_figures(tmp_path: Path) -> None:
    """Where it comes from, that the round trip is in the latency, and that no core here is
    taken.
    """
    asked = loaded(tmp_path)
    said = " ".join(sentences(asked, plan.expand(asked, SHIPPED).cells))
    assert (
        "The load comes from load@db2 over the network to 192.0.2.10 port 15432, with TLS and a "
        "password" in said
    )
    assert "includes a network round trip" in said and "the load generator on another host" in said


def test_server_has_all_cores_where_the_load_is_elsewhere() -> None:
    """On eight cores two would have been the load generator's."""
    assert cores.chosen_cores(EngineSpec("postgres"), range(8), Path("/nowhere")).server != set(
        range(8)
    )
    assert cores.chosen_cores(
        EngineSpec("postgres"),
        range(8),
        Path("/nowhere"),
        alone=True,
    ).server == set(range(8))


NETWORK = Network(
    "192.0.2.10",
    15432,
    "192.0.2.20",
    "secret-word",
    Path("/t/ca.pem"),
    Path("/t/s.pem"),
    Path("/t/s.key"),
)


def test_postgres_lets_one_address_in_by_tls_certificate_and_password() -> None:
    """One line beside the socket's, for one role in one database; nothing at all without a
    network.
    """
    lines = postgres._hba(NETWORK).splitlines()
    assert (
        lines[-1]
        == "hostssl dbbench dbbench_client 192.0.2.20/32 scram-sha-256 clientcert=verify-ca"
    )
    assert [line.split()[0] for line in lines if not line.startswith("#")] == ["local", "hostssl"]
    assert "::1/128" in postgres._hba(dataclasses.replace(NETWORK, peer="::1"))
    assert "host" not in postgres._hba(None).replace("socket", "")


def test_servers_listen_on_one_address(tmp_path: Path) -> None:
    """With TLS, whose files get the server's owner; without a network there is none."""
    owner = User("me", os.geteuid(), os.getegid())
    files = [tmp_path / name for name in ("ca.pem", "s.pem", "s.key")]
    for path in files:
        path.touch()
    network = dataclasses.replace(NETWORK, ca=files[0], cert=files[1], key=files[2])
    assert (postgres._listening(None, owner), innodb._listening(None, owner)) == ({}, {})
    of_postgres = postgres._listening(network, owner)
    of_innodb = innodb._listening(network, owner)
    assert (of_postgres["listen_addresses"], of_postgres["port"], of_postgres["ssl"]) == (
        "192.0.2.10",
        15432,
        True,
    )
    assert (of_innodb["bind_address"], of_innodb["port"]) == ("192.0.2.10", 15432)
    assert of_innodb["require_secure_transport"] is True
    assert "skip_networking" not in innodb.configuration({}, of_innodb, None, True)
    assert "skip_networking" in innodb.configuration({}, {}, None)
    # nobody else sets them
    assert set(of_postgres) <= set(postgres.PROFILE.reserved)
    assert set(of_innodb) <= set(innodb.PROFILE.reserved)


def test_account_of_mariadb_needs_a_certificate_and_gets_one_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its hash is what mysql_native_password keeps: of "password" the widely known one. An account
    of the user's own data that may come from anywhere is locked.
    """
    said: list[str] = []

    class Cursor:
        description: object = None

        def execute(self, statement: str, _values: object) -> None:
            said.append(statement)
            self.description = ("user", "host") if statement.startswith("SELECT") else None

        def fetchall(self) -> list[tuple[str, str]]:
            return [("o'neill", "%")]

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(
        InnodbServer,
        "connect",
        lambda *_: SimpleNamespace(cursor=Cursor, close=lambda: None),
    )
    server = InnodbServer(
        mariadb.PROFILE,
        Place(Path("/s"), Path("/l")),
        Mysqld(Path("/x/y"), ""),
        None,
    )
    server.admit("r", "192.0.2.20", "password")
    assert (said[0], said[2]) == (
        "SET SESSION sql_log_bin = OFF",
        "ALTER USER 'o''neill'@'%' ACCOUNT LOCK",
    )
    assert said[4:] == [
        "CREATE USER 'r'@'192.0.2.20' IDENTIFIED VIA mysql_native_password USING "
        "'*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19' REQUIRE X509",
        "GRANT ALL ON `dbbench`.* TO 'r'@'192.0.2.20'",
    ]


@pytest.mark.parametrize(
    ("changed", "ids"),
    [
        ({}, []),
        ({"clock_error_s": 0.06, "clock_drift_s": -0.05}, ["W023"]),
        ({"tool_here": "sysbench 1.0.20"}, []),
        ({"tool_here": "sysbench 1.0.17"}, ["W104"]),
        ({"tool": "pgbench (PostgreSQL) 15.4", "tool_here": "pgbench (PostgreSQL) 15.9"}, []),
        ({"tool": "pgbench (PostgreSQL) 16.0", "tool_here": "pgbench (PostgreSQL) 15.9"}, ["W104"]),
        ({"others_share": 0.09}, []),
        ({"others_share": 0.11}, ["W012"]),
    ],
)
def test_what_disturbs_a_client_is_named(changed: dict[str, Any], ids: list[str]) -> None:
    """Clocks that moved, another release, other work on its host; nothing without a client."""
    assert [one.id for one in fairness.of_client(dataclasses.replace(FACTS, **changed))] == ids
    assert list(fairness.of_client(None)) == []


def test_page_says_where_the_load_came_from() -> None:
    """And what of the network is in the figures."""
    facts = dataclasses.replace(FACTS, round_trip_ms=0.2134)
    away = trial(cores=CoresFacts("0-3", "0-7"), client=facts)
    assert (
        conditions._cores_sentence(away)
        == "the server ran on cores 0-3; no load generator ran on its host"
    )
    said = conditions._client_sentence(away)
    assert (
        said is not None
        and "another host, db2, over TLS" in said
        and "round trip of about 0.2 ms" in said
    )


def test_other_people_learn_neither_end_of_the_network() -> None:
    """`--redact hosts` takes names and addresses of both out of what is shown."""
    spec = SimpleNamespace(host={}, hosts={}, plan=SimpleNamespace(client=SPEC))
    run: Any = SimpleNamespace(run=spec, trials=[trial(host="db1", client=FACTS)])
    shown = redactor(run, ("hosts",))("load@db2 and db2 at 192.0.2.20 spoke to 192.0.2.10")
    assert not [word for word in ("db2", "192.0.2", "load@") if word in shown], shown


def test_fleet_refuses_a_client(tmp_path: Path, printed: Any) -> None:
    """Its address is one machine's."""
    loaded(tmp_path)
    told = printed("fleet", "run", str(tmp_path / "plan.toml"), "--local", "1", "--each", code=2)
    assert "[client] names the address of one machine" in told
