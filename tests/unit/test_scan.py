"""The scan of tables: which of its passes read memory."""

from dbbench.drivers.scan import warm_passes

PASSES = [1.0, 0.5, 0.5]
SIZE = 500_000_000


def test_passes_over_tables_in_memory_are_named() -> None:
    """With the rate of the first pass, which alone was cold."""
    (warning,) = warm_passes(PASSES, SIZE, memory=2 * SIZE)
    assert warning.id == "W158"
    assert warning.suspect is False
    assert "500 MB/s in the first, cold one, 750 MB/s on average" in warning.text


def test_cold_passes_are_not_named() -> None:
    """One pass, or tables that memory does not hold."""
    assert list(warm_passes(PASSES[:1], SIZE, memory=2 * SIZE)) == []
    assert list(warm_passes(PASSES, SIZE, memory=SIZE)) == []
