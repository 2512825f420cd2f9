"""Submits allocations to schedulers and takes in the schedulers' observations."""
