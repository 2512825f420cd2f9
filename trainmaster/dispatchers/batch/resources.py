"""Arithmetic for requests of nodes, shared by all batch schedulers. Pure."""

from __future__ import annotations


def even_share(slots: int, node_size: int) -> int:
    """Return the slots per node that spread `slots` evenly over as few nodes as possible: the largest divisor that a
    node of `node_size` slots can hold."""
    return next(each for each in range(min(slots, node_size), 0, -1) if slots % each == 0)
