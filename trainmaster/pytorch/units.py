"""`Batch` and `Epoch`: lengths and periods of a training."""

from __future__ import annotations

import sys
from collections import abc
from typing import Any, Mapping, Optional, Union


class TrainUnit:
    """A length, a period (a number) or a schedule (a list, or any other container of numbers).

    Args:
        value: The number, or those numbers at which something is due. A period below 1 is always due.
    """

    def __init__(self, value: Union[int, abc.Container[int]]) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "%s(%r)" % (type(self).__name__, self.value)

    def should_stop(self, step_num: int) -> bool:
        """Check whether something is due after `step_num` of these units."""
        if not isinstance(self.value, int):
            return step_num in self.value
        return self.value < 1 or (step_num > 0 and step_num % self.value == 0)


class Batch(TrainUnit):
    """Batches of one rank."""


class Epoch(TrainUnit):
    """Passes over the training data."""


def from_section(section: Mapping[str, Any], global_batch_size: Optional[int]) -> TrainUnit:
    """Read a period of an experiment's configuration, such as `min_validation_period: {epochs: 1}`.

    Args:
        section: One of `batches`, `records` and `epochs`, and a number; below 1 means never.
        global_batch_size: The batch size of all ranks together, which records are divided by.

    Raises:
        ValueError: It has another shape, or records without a batch size.
    """
    given = {name: value for name, value in section.items() if value is not None}
    if len(given) != 1 or not set(given) <= {"batches", "records", "epochs"}:
        raise ValueError("a period is one of batches, records and epochs, and a number, not %r" % (dict(section),))
    ((name, value),) = given.items()
    number = int(value)
    if number < 1:
        number = sys.maxsize
    elif name == "records":
        if not global_batch_size:
            raise ValueError("records need the hyperparameter global_batch_size, by which they are divided")
        number = max(number // global_batch_size, 1)
    return Epoch(number) if name == "epochs" else Batch(number)
