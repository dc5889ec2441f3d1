"""This machine: its facts, limits, page cache, mounts, namespaces, threads and kernel log."""
