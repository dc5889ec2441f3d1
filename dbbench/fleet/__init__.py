"""One plan over many machines. dask.distributed carries questions and answers; what a machine does is decided there.

host        a machine (or a part of one) with a name and a results folder of its own
worker      what listens on a host: one thread of dask.distributed; may die at any time (`worker`, `host`)
supervisor  what drives a host's trials: a daemon of its own, by the folder alone; outlives all others (`supervisor`)
coordinator what deals blocks, asks, and takes results home; may die at any time (`coordinator`, `dealing`, `record`)

A question is "what does this host have that I have not", so it may be asked twice, or by another coordinator: nothing
is started twice. Only `engine` and `daemons` import dask.distributed.
"""
