"""Nightly runs: what is kept of each night, when a change is a regression, and when to notify.

`tonight` runs a night and judges it. `history` keeps a line for each night and the runs that a person has accepted,
adds the guard to a plan, and removes old raw data. `analysis` finds regressions, and says when to notify.
"""
