"""Hours of trials with random faults: `python -m tests.soak --minutes 10` from a checkout, as root."""
