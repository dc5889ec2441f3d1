"""Options that a plan adds to a setup, in real runs: in effect, in the class, and refused by the
kernel only once.
"""

from typing import Any, Final

import pytest

from tests.support.plans import plan

pytestmark = pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "fio")
FILES: Final = {"name": "small-files", "files": 100, "clients": 1}


def test_what_the_kernel_refuses_is_tried_once(dbbench: Any) -> None:
    """The kernel knows both options, and refuses the pair when it mounts; later blocks run without
    that arm.
    """
    pair = {"use": "ext4", "label": "pair", "mount": ["data=journal", "delalloc"]}
    dbbench.plan(plan(["ext4", pair], "files", FILES, blocks=3, seed=1, warmup=None, measure=None))
    done = dbbench("run", "plan.toml", "--name", "r", status=1)
    assert "2 more trials of pair are left out" in done.stderr
    trials = dbbench.trials()
    refused = [trial for trial in trials.values() if trial["fs_setup"] == "pair"]
    assert [trial["error"]["id"] for trial in refused] == ["E302"]
    assert "data=journal and delalloc" in refused[0]["error"]["text"]
    assert [trial["fs_setup"] for trial in trials.values()].count("ext4") == 3
    order = dbbench.spec()["order"]
    assert [spec["position"] for spec in order] == [1, 2, 3, 4]
    dbbench("run", "plan.toml", "--name", "r", status=1)
    assert dbbench.trials().keys() == trials.keys()


def test_added_options_are_in_effect_and_in_the_class(dbbench: Any) -> None:
    """Read back from the kernel; the command line adds one more."""
    lazy = {"use": "ext4", "mount": ["nobarrier", "relatime"], "mkfs": ["-O", "^has_journal"]}
    dbbench.plan(plan(["ext4", lazy], "files", FILES, warmup=None, measure=None))
    arms = "ext4,ext4:nobarrier+relatime+O=-has_journal,ext4:commit=60,data=writeback"
    dbbench("run", "plan.toml", "--name", "r", "--fs", arms)
    found = {trial["fs_setup"]: trial["filesystem"] for trial in dbbench.trials().values()}
    classes = {arm: facts["durability_class"] for arm, facts in found.items()}
    assert classes == {
        "ext4": "full",
        "ext4:nobarrier+relatime+O=-has_journal": "no-barrier + no-journal",
        "ext4:commit=60+data=writeback": "full",
    }
    effective = {arm: set(facts["mount_options_effective"]) for arm, facts in found.items()}
    assert {"noatime", "commit=60", "data=writeback"} <= effective["ext4:commit=60+data=writeback"]
    assert "relatime" in effective["ext4:nobarrier+relatime+O=-has_journal"]
