"""The CPUs of server and load generator."""

from pathlib import Path
from typing import Any

import pytest

from dbbench.errors import MachineTooSmall
from dbbench.machine import cores
from dbbench.model import EngineSpec
from tests.support.files import write_file


@pytest.mark.parametrize(
    ("words", "numbers"), [("0", {0}), ("0-3,8", {0, 1, 2, 3, 8}), ("5, 2-3", {2, 3, 5})]
)
def test_lists_of_cores_are_read_as_the_kernel_writes_them(words: str, numbers: set[int]) -> None:
    """And written again in the shortest form."""
    assert cores.parsed_cores(words) == numbers
    assert cores.parsed_cores(cores.written_cores(numbers)) == numbers


def test_from_four_cores_on_a_quarter_is_the_clients(tmp_path: Path) -> None:
    """Disjoint without being asked, and the threads of a core stay together."""
    for core in range(8):
        folder = tmp_path / f"cpu/cpu{core}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{core % 4},{core % 4 + 4}\n")
    found = cores.chosen_cores(EngineSpec("postgres"), range(8), tmp_path)
    assert (found.client, found.common) == ({3, 7}, set())
    assert found.server == {0, 1, 2, 4, 5, 6}


def test_cores_that_a_plan_names(tmp_path: Path) -> None:
    """Below four cores all are shared, because half of a machine is not reserved unless the plan
    requests it. Naming one side is enough to have both apart; a person may put both on one core.
    The server's are those of the named node. What is not there is refused by number, with those
    that are.
    """

    def found(count: int, **spec: Any) -> cores.Cores:
        return cores.chosen_cores(EngineSpec("postgres", **spec), range(count), tmp_path)

    write_file(tmp_path / "node/node1/cpulist", "4-7\n")
    assert found(2).server == found(2).client == found(2).common == {0, 1}
    assert found(2, cpus_client="1").server == {0}
    assert found(4, cpus_server="0-2").client == {3}
    assert found(4, cpus_server="0", cpus_client="0").common == {0}
    node = found(8, numa_node=1)
    assert (node.server, node.numa_node, node.common) == ({4, 5, 6, 7}, 1, set())
    for spec, told in (
        ({"cpus_server": "2,7"}, "CPU 7 is not available"),
        ({"numa_node": 2}, "no such node"),
    ):
        with pytest.raises(MachineTooSmall, match=told):
            found(4, **spec)
