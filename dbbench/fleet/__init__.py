"""One plan on many machines. dask.distributed carries questions and answers; each machine decides what it does.

host        a machine (or a part of one) with a name and its own results folder
worker      listens on a host: one thread of dask.distributed; may die at any time (`worker`, `host`)
supervisor  runs a host's trials: a daemon that uses only the run's directory; outlives all others (`supervisor`)
coordinator assigns blocks, asks, and collects results; may die at any time (`coordinator`, `ledger`)

A question is "which results do you have that I do not", so it may be repeated, also by another coordinator: nothing is
started twice. Only `transport` and `daemons` import dask.distributed.
"""
