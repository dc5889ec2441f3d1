"""Laboratories: simulated power loss (`powercut`), and setups that need another kernel
(`second_kernel`).
"""
