"""Nightly runs: `tonight` runs a night, `night` is what is kept of it, `history` keeps a line for
each and the accepted runs, `analysis` finds regressions and says when to notify.
"""
