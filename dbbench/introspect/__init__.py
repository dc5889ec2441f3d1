"""Plans and workloads from existing systems: `server` reads a running server, and `recordings` statements that another
server recorded; `rules` selects them and draws their parameters, and `writing` makes a workload of them."""
