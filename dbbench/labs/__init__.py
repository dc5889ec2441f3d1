"""Laboratories: simulated power loss, corrupted blocks and full disks."""
