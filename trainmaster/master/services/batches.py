"""Batches of calls in one transaction: what their handlers promise, and the outcome of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

R = TypeVar("R")
Call = TypeVar("Call", contravariant=True)
Result = TypeVar("Result", covariant=True)


class CannotBatch(Exception):
    """The outcome of a call that has to be taken in by itself, where it keeps nobody else waiting: it leads to more
    than its neighbours, or somebody holds what it needs."""


def single(outcomes: Sequence[R | Exception]) -> R:
    """Return the result of a batch of one. Raises its error."""
    (outcome,) = outcomes
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


class BatchHandler(Protocol[Call, Result]):
    """Takes in calls in one transaction, as far as they fit in one. Gives the outcome of each, in their order.

    Without `wait`, calls that would wait for a lock are left `CannotBatch`, and so are those that take a transaction of
    their own; with it no call is."""

    def __call__(self, calls: Sequence[Call], /, *, wait: bool) -> Sequence[Result | Exception]: ...
