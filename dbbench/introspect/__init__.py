"""Plans and workloads from existing systems: `server` reads one, and `recordings` the statements
that one recorded.
"""
