"""What `dbbench doctor` prints."""

import contextlib

from dbbench.commands.doctor import Probe, put_rows, summary
from tests.support.terminal import WideStream


def test_doctor_ends_with_what_to_change() -> None:
    """One line, without what is optional and without the devices."""
    row = Probe("reproducible results", "other load", False, "load 12")
    device = Probe("devices", "device /dev/vda", False, "in use")
    optional = Probe("measure", "mkfs.ext9", False, None, optional=True)
    missing = Probe("measure", "sadf", False, None)
    rest = [device, optional, row._replace(ok=True)]
    text = summary([missing, row, *rest])
    assert text.startswith("To change: sadf (missing); other load (for reproducible results).")
    assert summary(rest).startswith("Nothing to change")


def test_doctor_fits_the_terminal() -> None:
    """What has no space next to its check is below it, indented; a wider terminal and a pipe have
    it on one line.
    """
    row = Probe(
        "measure",
        "space for golden copies",
        False,
        "0.2 GiB free at /home/someone/.cache/dbbench/golden",
        "8 GiB",
        "free some space, or use --results DIR and DBBENCH_CACHE",
    )
    for columns, lines in ((80, 4), (160, 3)):
        with WideStream(columns) as stdout, contextlib.redirect_stdout(stdout):
            put_rows([row])
            printed = stdout.getvalue().splitlines()
        assert max(map(len, printed)) <= columns and len(printed) == lines
        assert " ".join("".join(printed).split()).endswith("use --results DIR and DBBENCH_CACHE")
    fix = (
        "Release it (umount, swapoff, losetup -d, remove the line in fstab), or choose another "
        "device."
    )
    row = Probe(
        "this plan",
        "plan.toml: a device is in use",
        False,
        "/dev/sdb is in use:\n  opened by mariadbd",
        "this plan",
        fix,
    )
    with WideStream(80) as stdout, contextlib.redirect_stdout(stdout):
        put_rows([row._replace(purpose="measure"), row._replace(found=None, needed="")])
        printed = [line.strip() for line in stdout.getvalue().splitlines()]
    assert {"/dev/sdb is in use:", "opened by mariadbd; needed: this plan"} <= {
        *printed
    } and printed.count("") == 1
