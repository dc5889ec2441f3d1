"""Statements that another server has recorded, made into a workload: read, sorted out, written as a weighted script."""

from dbbench.recorded.reading import Recording, read
from dbbench.recorded.sorting import Kept, Sorted, sorted_out
from dbbench.recorded.writing import Written, written

__all__ = ["Kept", "Recording", "Sorted", "Written", "read", "sorted_out", "written"]
