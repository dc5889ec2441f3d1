"""The sequence that ages a filesystem: a function of seed, size and churn alone."""

import collections
import hashlib
import itertools
from collections.abc import Iterable

import pytest

from dbbench.storage import ageing
from dbbench.storage.ageing import Step, sequence

MIB = 2**20
WHOLE = 64 * MIB


def digest(steps: Iterable[Step]) -> str:
    """Of all steps, as a trial records it."""
    found = hashlib.sha256()
    for step in steps:
        found.update(step.line())
    return found.hexdigest()


def played(steps: Iterable[Step]) -> tuple[dict[str, int], int, int]:
    """Sizes of the files that stay, the most bytes that were there at a time, bytes written."""
    sizes: dict[str, int] = collections.defaultdict(int)
    most = written = 0
    for step in steps:
        if step.kind == "remove":
            del sizes[step.name]
        elif step.kind == "write":
            sizes[step.name] = max(sizes[step.name], step.offset + step.size)
            written += step.size
            most = max(most, sum(sizes.values()))
    return dict(sizes), most, written


def test_a_sequence_is_that_of_its_seed_size_and_churn() -> None:
    """Names, sizes, places and bytes are the same everywhere and in every version: results that say
    the same seed mean the same past. Who changes the sequence changes what they mean
    (CHANGELOG). Each of the three changes it.
    """
    own, *others = map(
        digest,
        itertools.starmap(
            sequence, [(1, WHOLE, 2.0), (2, WHOLE, 2.0), (1, WHOLE + MIB, 2.0), (1, WHOLE, 1.5)]
        ),
    )
    assert own == "a710e018ce63f5ef67915f0eb973d6edadb9484aad5a9ea1166e04122a5bdc9d"
    assert own not in others


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("churn", [0.0, 0.3, 3.0])
def test_it_leaves_what_was_asked(seed: int, churn: float) -> None:
    """The files add up to the fill exactly, and never to more on the way: it cannot overflow what
    fits.
    """
    sizes, most, written = played(sequence(seed, WHOLE, churn))
    assert sum(sizes.values()) == WHOLE
    assert most == WHOLE
    assert written == pytest.approx((1 + churn) * WHOLE, rel=0.25)


def test_sizes_are_mixed_and_files_grow_side_by_side() -> None:
    """Most files are small, most bytes are in large ones. Two pieces of a file seldom follow each
    other. A sync after every few MiB and at the end gives pieces their places: delayed
    allocation would undo them. A file that is whole is ended once, which releases preallocated
    space. Every piece is cut out of the noise in full: nothing compresses.
    """
    steps = list(sequence(1, WHOLE, 2.0))
    sizes = sorted(played(steps)[0].values())
    assert sizes[len(sizes) // 2] < WHOLE / len(sizes)
    assert sum(sizes[len(sizes) // 2 :]) > 0.8 * WHOLE
    assert len(sizes) > 50
    since = 0
    for step in steps:
        since = 0 if step.kind == "sync" else since + step.size * (step.kind == "write")
        assert since <= ageing.SYNC_BYTES + ageing.PIECE
    assert steps[-1].kind == "sync"
    ended, writes = ([step for step in steps if step.kind == kind] for kind in ("end", "write"))
    assert len(ended) == len({step.name for step in ended}) == len({step.name for step in writes})
    assert all(step.source >= 0 and step.source + step.size <= ageing.SAMPLE for step in writes)
    fresh = [step.name for step in sequence(1, WHOLE, 0.0) if step.kind == "write"]
    assert sum(one == two for one, two in itertools.pairwise(fresh)) < 0.1 * len(fresh)
