"""Arithmetic that every scheduler's request for nodes needs. Pure."""

from __future__ import annotations


def even_share(slots: int, node_size: int) -> int:
    """Slots of each node, when `slots` are to lie on as few nodes as possible, the same number on each: the largest
    divisor that a node of `node_size` slots can hold."""
    return next(each for each in range(min(slots, node_size), 0, -1) if slots % each == 0)
