"""Plans and workloads from existing systems: a running server (`server`), recorded statements (`statements`)."""
