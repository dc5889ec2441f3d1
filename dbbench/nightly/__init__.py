"""Nightly runs: `tonight` runs a night, `night` is what is kept of it, `history` keeps a line for
each and the accepted runs, `judging` compares a night with the nights before, `analysis` lists
regressions and says when to notify.
"""
