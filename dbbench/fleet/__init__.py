"""One plan on several machines: dask.distributed schedules its parts, retries and cancels them.
part         a block of the plan (`spread`), or the whole plan of a host (`each`): one dask task
worker       dask's worker on a host (`daemons`), which runs such a task (`task`) as `dbbench run
             --share` does; it stops with its worker
coordinator  submits parts, imports the results that they return as `dbbench import` does, prints

Only `daemons`, `task`, `launch` and `scheduler` import dask.distributed.
"""
