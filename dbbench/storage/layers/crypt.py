"""dm-crypt in plain mode: the volume is the whole device; the key is read from /dev/urandom and not
stored.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Final

from dbbench import process
from dbbench.errors import MakeFailed
from dbbench.model import Commands, Layer, Scalars, Words
from dbbench.results.journal import Journal
from dbbench.storage.devices.port import Device
from dbbench.storage.layers import volume
from dbbench.storage.layers.volume import failing, open_volume, reserve

PROGRAMS: Final = ("cryptsetup", "dmsetup", "wipefs")  # for making and removing


def needs(layer: Layer) -> Words:
    """Return the kernel's target; the kernel loads the cipher."""
    return ("dm-crypt",)


def commands(layer: Layer, targets: Words) -> tuple[Commands, Words]:
    """Return the commands for one volume on each target."""
    names = tuple(f"dbbench-{number}" for number in range(1, len(targets) + 1))
    opens = [_open(layer, target, name) for target, name in zip(targets, names, strict=True)]
    return opens, tuple(f"/dev/mapper/{name}" for name in names)


def _open(layer: Layer, target: str, name: str) -> Words:
    """Return the command. XTS splits a 512-bit key in two halves: AES-256, LUKS's default."""
    how = [
        "--type",
        "plain",
        "--cipher",
        layer.cipher,
        "--key-size",
        "512" if "xts" in layer.cipher else "256",
    ]
    return ("cryptsetup", "open", "--batch-mode", *how, "--key-file", "/dev/urandom", target, name)


@contextlib.contextmanager
def make(
    layer: Layer,
    devices: Sequence[Device],
    journal: Journal,
) -> Iterator[tuple[Device, ...]]:
    """Yield an encrypted volume on each of the devices. Raises MakeFailed, UnmountFailed."""
    # Each device has a mapping of its own; the layer above combines them.
    with reserve("crypt", end, devices, journal) as name, contextlib.ExitStack() as stack:
        volumes = []
        for number, device in enumerate(devices, start=1):
            member_name = f"{name}-{number}"
            with failing(f"dm-crypt on {device.path}"):
                volume.load_module(*needs(layer))
                process.run(
                    _open(layer, device.argument, member_name),
                    pass_fds=(device.fd,),
                    env=volume.MAPPER_ENV,
                )
                printed = process.run(
                    ["cryptsetup", "status", member_name],
                    env=volume.MAPPER_ENV,
                    note=False,
                ).stdout
            # What the kernel uses is read back and compared with the setup.
            facts = {**parse_status(printed), "kind": "crypt", "name": member_name}
            if facts["cipher"] != layer.cipher:
                raise MakeFailed(
                    f"{member_name} uses the cipher {facts['cipher']} instead of {layer.cipher}",
                    effect="Nothing was measured.",
                )
            volumes.append(
                stack.enter_context(
                    open_volume(volume.mapped_names(member_name)[member_name], facts)
                )
            )
        yield tuple(volumes)


@process.understood("cryptsetup")
def parse_status(text: str) -> Scalars:
    """Return cipher, key_bits, sector_bytes and size_bytes from `cryptsetup status`."""
    fields = dict(re.findall(r"^\s+([a-z ]+?):\s+(.*)$", text, re.MULTILINE))
    sector = int(fields["sector size"].split()[0])
    return {
        "cipher": fields["cipher"],
        "key_bits": int(fields["keysize"].split()[0]),
        "sector_bytes": sector,
        # dm counts in sectors of 512 bytes, whatever the sectors of the volume are.
        "size_bytes": int(fields["size"].split()[0]) * 512,
    }


def end(name: str) -> bool:
    """Remove the volumes; return whether there were any. Raises UnmountFailed."""
    return volume.remove_dm(name)
