"""The user's own data as a dataset: what lies at a path, whether an engine can take it, and how it becomes a copy."""

from dbbench.datasets.sources.building import described, laid, loaded, of, programs, sealed, tablespaces_of
from dbbench.datasets.sources.looking import look
from dbbench.datasets.sources.source import FORMS, Source, dataset_of, fits, places

__all__ = [
    "FORMS",
    "Source",
    "dataset_of",
    "described",
    "fits",
    "laid",
    "loaded",
    "look",
    "of",
    "places",
    "programs",
    "sealed",
    "tablespaces_of",
]
