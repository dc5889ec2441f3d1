"""Convert statements recorded by another server into a workload: read, select, write as a weighted script."""

from dbbench.introspect.statements.recordings import RecordedStatements, read
from dbbench.introspect.statements.rules import Kept, Sorted, sorted_out
from dbbench.introspect.statements.writing import written

__all__ = ["Kept", "RecordedStatements", "Sorted", "read", "sorted_out", "written"]
