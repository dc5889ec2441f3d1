"""The other host of a load generator: password, transferred files, clock, programs, and the
agent.
"""

import base64
import dataclasses
import io
import itertools
import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from dbbench import remote
from dbbench.drivers import AWAY, pgbench, sysbench
from dbbench.drivers.protocol import LoadTask
from dbbench.errors import ClientUnusable, DriverFailed
from dbbench.metrics.series import Clock
from dbbench.remote import Client, Network, RemoteProgram, agent
from dbbench.remote import network as networks
from dbbench.remote.ssh import Session
from tests.unit.test_client import FACTS, SPEC, cells


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        ("long-enough\n", 0o640, "is readable by other users (mode 640)"),
        ("long-enough\n", 0o604, "is readable by other users (mode 604)"),
        ("short\n", 0o600, "8 to 100 letters"),
        ('with"quote\n', 0o600, "8 to 100 letters"),
        ("with'quote\n", 0o600, "8 to 100 letters"),
        ("back\\slash\n", 0o600, "8 to 100 letters"),
        ("two\nlines of it\n", 0o600, "8 to 100 letters"),
        (None, 0, "cannot be read"),
    ],
)
def test_password_file_is_refused(
    tmp_path: Path,
    text: str | None,
    mode: int,
    told: str,
) -> None:
    """Where others can read it, or what it holds is none; the password itself is never in the
    message.
    """
    path = tmp_path / "password"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    with pytest.raises(ClientUnusable) as caught:
        networks.password(dataclasses.replace(SPEC, password_file=str(path)))
    assert told in caught.value.evidence
    assert not text or text.strip() not in f"{caught.value.evidence} {caught.value.remedy}"


def test_password_is_the_line_of_its_file(tmp_path: Path) -> None:
    """Signs are allowed; the end of the line is not a part of it, and a repr does not show it."""
    (path := tmp_path / "password").touch(0o600)
    path.write_text("a!#$%&()*+,-./:;<=>?@[]^_`{|}~9\n")
    found = networks.password(dataclasses.replace(SPEC, password_file=str(path)))
    assert found == "a!#$%&()*+,-./:;<=>?@[]^_`{|}~9"
    assert found not in repr(Network("192.0.2.10", 15432, "192.0.2.20", found))


class Answers:
    """A session whose answers are given by functions, and which notes what it was asked."""

    host = "load@db2"
    facts: ClassVar[dict[str, Any]] = {
        "folder": "/tmp/there",
        "cores": [0, 1, 2, 3],
        "hostname": "db2",
        "kernel": "6.1",
        "setpriv": "/usr/bin/setpriv",
    }

    def __init__(self, **answers: Callable[..., Any]) -> None:
        self.answers, self.asked, self.gone, self.ended = (
            answers,
            list[tuple[str, dict[str, Any]]](),
            False,
            None,
        )
        self.prints: dict[str, Path] = {}

    def ask(self, do: str, **what: Any) -> Any:
        self.asked.append((do, what))
        return self.answers[do](**what)

    def put(self, name: str, content: bytes) -> str:
        self.asked.append(("put", {"name": name}))
        return f"/tmp/there/{name}"

    def lost(self, what: str) -> DriverFailed:
        return DriverFailed(what)


def there(**answers: Callable[..., Any]) -> tuple[Client, Answers]:
    """A client that was reached, with the session behind it."""
    session = Answers(start=lambda **_: {"utc": 1000.5, "monotonic": 5.0}, **answers)
    found = Client(
        SPEC,
        "pgbench",
        "15.4",
        Path("/p"),
        FACTS,
        "/opt/pg/bin/pgbench",
        remote._libpq("/tmp/there", "secret-word"),
    )
    found.facts = dataclasses.replace(FACTS, clock_offset_s=0.5)
    found.session = session  # type: ignore[assignment]
    return found, session


SERVER: Any = SimpleNamespace(
    engine="postgres",
    socket=Path("/run/s/.s.PGSQL.15432"),
    socket_dir=Path("/run/s"),
    user="dbbench",
    database="dbbench",
    bin=Path("/usr/bin"),
    alive=lambda: True,
)


def driven(
    tmp_path: Path, client: Client, driver: Any, load: str, **written: str
) -> dict[str, Any]:
    """What the session was asked to start for a load (engine and workload); no file here has the
    password.
    """
    server = SimpleNamespace(**{**vars(SERVER), "engine": load.split()[0]})
    cell = cells(tmp_path, **written)[load]
    with driver.driving_from(
        client, LoadTask(server, cell, 1, Clock(), tmp_path, tmp_path)
    ) as running:  # type: ignore[arg-type]
        assert running.pids == ()  # no process of this machine
    assert all(
        "secret-word" not in path.read_text() for path in tmp_path.iterdir() if path.is_file()
    )
    session: Any = client.session
    return dict(session.asked[-1][1])


def test_pgbench_there_verifies_the_server_and_has_its_password_in_no_argument(
    tmp_path: Path,
) -> None:
    """libpq holds the certificate against our authority and the address; the command that is kept
    has no password.
    """
    client, _ = there()
    started = driven(tmp_path, client, pgbench, "postgres pgbench-tpcb")
    argv = started["argv"]
    env = started["env"]
    assert argv[:3] == ["/opt/pg/bin/pgbench", "--host=192.0.2.10", "--port=15432"]
    assert argv[3] == "--username=dbbench_client" and "--log-prefix=/tmp/there/pgbench_log" in argv
    assert (env["PGSSLMODE"], env["PGSSLROOTCERT"]) == ("verify-full", "/tmp/there/cacert.pem")
    assert env["PGPASSWORD"] == "secret-word" and "secret-word" not in json.dumps(argv)


@pytest.mark.parametrize("engine", ["postgres", "mariadb"])
def test_sysbench_there_reads_its_password_from_stdin(tmp_path: Path, engine: str) -> None:
    """As a line of the file of options, which is its stdin; TLS by its own option or by libpq's
    environment.
    """
    client, session = there()
    client.tool = "/usr/bin/sysbench"
    started = driven(tmp_path, client, sysbench, f"{engine} sysbench-oltp-read-only")
    kind = {"postgres": "pgsql", "mariadb": "mysql"}[engine]
    argv = started["argv"]
    assert {
        "--config-file=/dev/stdin",
        f"--{kind}-host=192.0.2.10",
        f"--{kind}-user=dbbench_client",
    } <= {*argv}
    assert started["stdin"] == f'{kind}-password="secret-word"\n'
    assert ("--mysql-ssl=on" in argv) == (engine == "mariadb")
    assert ("PGSSLMODE" in started["env"]) == (engine == "postgres")
    assert "DBBENCH_BEGIN" not in started["env"]  # it is of that host's clock
    assert ("put", {"name": "dbbench_events.lua"}) in session.asked


def test_scripts_are_sent_with_what_lies_beside_them(tmp_path: Path) -> None:
    """tpcc.lua loads a second file from its own folder."""
    client, session = there()
    started = driven(tmp_path, client, sysbench, "mariadb tpcc", workload="tpcc")
    sent = [what["name"] for do, what in session.asked if do == "put"]
    assert sent == ["tpcc.lua", "tpcc_transactions.lua", "dbbench_events.lua"]
    assert started["env"]["DBBENCH_SCRIPT"] == "/tmp/there/tpcc.lua"


def test_clock_of_the_other_host(tmp_path: Path) -> None:
    """The clock there is 3 s ahead; a question that took long on its way back says little. What was
    1000.5 there, half a second ahead, was 1000.0 here; logs keep theirs. A certificate waits for
    a clock that is a little behind, by what it is behind; one that is far behind is an error
    before the trial.
    """
    clock = Clock()
    waited = list[float]()
    # many quick ones: on a busy machine one of them alone may wait as well
    waits = itertools.cycle([0.05, 0.0])

    def slow(**_: Any) -> dict[str, float]:
        utc = clock.now_utc() + 3.0
        time.sleep(next(waits))
        return {"utc": utc}

    offset, error = remote.offset_of(Answers(clock=slow), clock)  # type: ignore[arg-type]
    assert abs(offset - 3.0) <= error < 0.025
    client, _ = there()
    program = client.start(["x"], {}, "", tmp_path / "o", tmp_path / "e")
    assert (program.begin_utc, program.there_utc) == (1000.0, 1000.5)
    remote.punctual(Answers(), 2.0, waited.append)  # type: ignore[arg-type]
    remote.punctual(Answers(), -1.5, waited.append)  # type: ignore[arg-type]
    assert waited == [1.5]
    with pytest.raises(ClientUnusable, match="40 s behind"):
        remote.punctual(Answers(), -40.0, waited.append)  # type: ignore[arg-type]


def test_end_of_the_connection_is_an_error_and_no_end_of_the_tool() -> None:
    """A program that may still run there has no status; one that was told has."""
    session = Answers()
    program = RemoteProgram(session, ("x",), 0.0, 0.0)  # type: ignore[arg-type]
    assert program.poll() is None
    session.gone = True
    with pytest.raises(DriverFailed):
        program.poll()
    session.ended = {"ended": 1, "cpu_s": 0.1}  # type: ignore[assignment]
    assert program.poll() == 1


def tools(**told: str) -> Answers:
    """A host with these programs, by their paths."""
    return Answers(versions=lambda name, patterns: {path: text for text, path in told.items()})


def test_pgbench_of_the_servers_own_version_is_taken() -> None:
    """Of several; else the newest. Programs that are missing are named with the command that helps;
    another sysbench than 1.0 has other options. What is looked for is known of each load
    generator that can be away.
    """
    has = tools(
        **{"pgbench (PostgreSQL) 15.4": "/15/pgbench", "pgbench (PostgreSQL) 17.2": "/17/pgbench"}
    )
    assert remote.tool_of(has, "pgbench", "15.9") == ("/15/pgbench", "pgbench (PostgreSQL) 15.4")  # type: ignore[arg-type]
    assert remote.tool_of(has, "pgbench", "16.1")[0] == "/17/pgbench"  # type: ignore[arg-type]
    assert set(AWAY) == set(remote._PATTERNS)
    with pytest.raises(ClientUnusable, match="load@db2 has no sysbench"):
        remote.tool_of(tools(), "sysbench", "")  # type: ignore[arg-type]
    with pytest.raises(ClientUnusable, match=r"sysbench 1\.0 is required"):
        remote.tool_of(tools(**{"sysbench 1.1.0-abc": "/usr/bin/sysbench"}), "sysbench", "")  # type: ignore[arg-type]


def test_only_a_peer_with_the_word_is_the_client(tmp_path: Path) -> None:
    """Every account of every machine can connect; its address would be allowed to log in to the
    server. On the address of another machine nothing listens: 192.0.2.10 is for documents alone
    (RFC 5737).
    """
    with (
        pytest.raises(ClientUnusable, match=r"cannot listen on 192\.0\.2\.10 port 15432"),
        networks.answering(SPEC, "word"),
    ):
        pass
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    spec = dataclasses.replace(SPEC, address="127.0.0.1", port=port)
    with networks.answering(spec, "word") as peers:  # connections are accepted in their order
        with socket.create_connection(("127.0.0.1", port), 5.0, ("127.0.0.2", 0)) as other:
            other.sendall(b"gues")
        assert len(agent.Agent(tmp_path).reach("127.0.0.1", port, "word", 3, 5.0)) == 3
        deadline = time.monotonic() + 60
        while not peers and time.monotonic() < deadline:
            time.sleep(0.01)
    assert peers == {"127.0.0.1"}


def test_agent_writes_what_it_is_sent_for_itself_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Into its folder whatever the name says, of mode 600, and back in pieces. A missing file is
    reported, and the agent continues; it ends at the end of stdin.
    """
    requests = [
        {"do": "put", "name": "../a", "content": base64.b64encode(b"h\nllo").decode()},
        {"do": "files"},
        {"do": "read", "name": "../a", "at": 2},
        {"do": "read", "name": "a", "at": 5},
        {"do": "beat"},
        {"do": "read", "name": "no", "at": 0},
    ]
    left = signal.alarm(0)  # the limit of this test
    agent.Agent(tmp_path).serve([json.dumps(request).encode() for request in requests])
    assert 0 < signal.alarm(left) <= agent.SILENCE_S  # silence ends it
    put, files, middle, end, missing = map(json.loads, capfd.readouterr().out.splitlines())
    path = tmp_path / "a"
    assert (put, files) == ({"answer": str(path)}, {"answer": ["a"]})
    assert base64.b64decode(middle["answer"]) == b"llo" and end == {"answer": ""}
    assert missing["error"].startswith("read: ")
    assert path.read_bytes() == b"h\nllo" and path.stat().st_mode & 0o777 == 0o600


def test_session_parts_answers_from_output(tmp_path: Path) -> None:
    """A login shell's greeting is not an answer; output of a tool goes to its file."""
    pipe = io.BytesIO(
        b'Welcome\n"quoted"\n{"output": "out", "text": "progress\\n"}\n{"answer": 7}\n'
        b'{"ended": 0, "cpu_s": 1.5}\n'
    )
    ssh: Any = SimpleNamespace(popen=SimpleNamespace(stdout=pipe))
    session = Session("db2", ssh, tmp_path / "log")
    session.prints = {"out": tmp_path / "out"}
    session._listen()
    assert [session._answers.get_nowait() for _ in range(2)] == [{"answer": 7}, None]
    assert (tmp_path / "out").read_text() == "progress\n"
    assert session.ended == {"ended": 0, "cpu_s": 1.5} and session.gone


def test_cpu_time_there_is_counted_by_itself() -> None:
    """Of 4 processors in 10 s the load generator used 9 s and others 3 s."""
    readings = iter(
        [
            {"monotonic": 0.0, "busy_s": 100.0, "tool_s": 1.0},
            {"monotonic": 10.0, "busy_s": 112.0, "tool_s": None},
        ]
    )
    client, session = there(cpu=lambda: next(readings))
    client.facts = dataclasses.replace(FACTS, cpus=4)
    client.read_cpu()
    session.ended = {"ended": 0, "cpu_s": 10.0}  # type: ignore[assignment]
    assert client.cpu() == {"seconds": 10.0, "client_cpu_s": 9.0}
    assert client.facts.others_share == pytest.approx(3 / 40)
