"""One plan on many machines: a coordinator deals blocks, a worker on each host has them run, and
the results come back.
host         a machine (or a part of one) with a name and its own results folder
worker       listens on a host: one thread of dask.distributed; may die at any time (`worker`,
             `host`)
share        runs a host's blocks as `dbbench run` does, from the run's directory only; outlives
             all others
coordinator  deals blocks, asks for results, and stores them; may die at any time

A question is "which results do you have that I do not", so it may be repeated, also by another
coordinator: nothing is started twice. Only `connection` and `daemons` import dask.distributed.
"""
