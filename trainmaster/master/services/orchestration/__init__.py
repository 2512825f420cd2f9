"""Applies the decisions of the pure state machines to the rows of experiments, trials, tasks and allocations."""
