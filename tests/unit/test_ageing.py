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


def test_same_seed_same_sequence() -> None:
    """Names, sizes, places and bytes are the same everywhere and in every version: results that say the same seed
    mean the same past. Who changes the sequence changes what they mean (CHANGELOG)."""
    assert digest(sequence(1, WHOLE, 2.0)) == "a710e018ce63f5ef67915f0eb973d6edadb9484aad5a9ea1166e04122a5bdc9d"


@pytest.mark.parametrize("other", [(2, WHOLE, 2.0), (1, WHOLE + MIB, 2.0), (1, WHOLE, 1.5)])
def test_another_seed_size_or_churn_is_another_sequence(other: tuple[int, int, float]) -> None:
    """Each of the three changes it."""
    assert digest(sequence(*other)) != digest(sequence(1, WHOLE, 2.0))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("churn", [0.0, 0.3, 3.0])
def test_it_leaves_what_was_asked(seed: int, churn: float) -> None:
    """The files add up to the fill exactly, and never to more on the way: it cannot overflow what fits."""
    sizes, most, written = played(sequence(seed, WHOLE, churn))
    assert sum(sizes.values()) == WHOLE
    assert most == WHOLE
    assert written == pytest.approx((1 + churn) * WHOLE, rel=0.25)


def test_sizes_are_mixed() -> None:
    """Most files are small, most bytes are in large ones."""
    sizes = sorted(played(sequence(1, WHOLE, 2.0))[0].values())
    assert sizes[len(sizes) // 2] < WHOLE / len(sizes)
    assert sum(sizes[len(sizes) // 2 :]) > 0.8 * WHOLE
    assert len(sizes) > 50


def test_files_grow_side_by_side() -> None:
    """Two pieces of one file seldom follow each other: another file's lies between."""
    steps = [step for step in sequence(1, WHOLE, 0.0) if step.kind == "write"]
    follows = sum(one.name == two.name for one, two in itertools.pairwise(steps))
    assert follows < 0.1 * len(steps)


def test_pieces_get_their_places_one_by_one() -> None:
    """There is a sync after every few MiB, and one at the end: delayed allocation would undo the pieces."""
    steps = list(sequence(1, WHOLE, 1.0))
    since = 0
    for step in steps:
        since = 0 if step.kind == "sync" else since + step.size * (step.kind == "write")
        assert since <= ageing.SYNC_BYTES + ageing.PIECE
    assert steps[-1].kind == "sync"


def test_content_is_within_the_noise() -> None:
    """Every piece is cut out of the sample in full: no short writes, nothing that compresses."""
    assert all(step.at >= 0 and step.at + step.size <= ageing.SAMPLE
               for step in sequence(3, WHOLE, 2.0) if step.kind == "write")  # fmt: skip


def test_a_file_that_is_whole_is_ended_once() -> None:
    """Preallocated space is released: one `end` per file, of its size."""
    steps = list(sequence(1, WHOLE, 1.0))
    ended = [step.name for step in steps if step.kind == "end"]
    assert len(ended) == len(set(ended)) == len({step.name for step in steps if step.kind == "write"})
