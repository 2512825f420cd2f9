"""`PyTorchTrial`: a training as a class, which the training loop calls batch by batch."""

from __future__ import annotations

import abc
from typing import Any, Dict, Union

from trainmaster.pytorch.callback import PyTorchCallback
from trainmaster.pytorch.context import PyTorchTrialContext
from trainmaster.pytorch.loader import data_length
from trainmaster.pytorch.reducers import Reducer


class PyTorchTrial(metaclass=abc.ABCMeta):
    """Base class of a training. The interface is that of Determined 0.38.1.

    A trial wraps its models, optimizers and schedulers in `__init__`, trains in `train_batch`, and validates in either
    `evaluate_batch`, by all ranks together, or `evaluate_full_dataset`, by the chief alone.
    """

    @abc.abstractmethod
    def __init__(self, context: PyTorchTrialContext) -> None:
        """Make and wrap models, optimizers and schedulers.

        Args:
            context: Wraps them, and knows the hyperparameters.
        """

    @abc.abstractmethod
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        """Train on one batch: `context.backward(loss)`, `context.step_optimizer(optimizer)`.

        Args:
            batch: What the loader made, on this rank's device.
            epoch_idx: The epoch, counted from 0.
            batch_idx: The batch since the start of the trial, counted from 0.

        Returns:
            The loss, or a dict of metrics.
        """

    @abc.abstractmethod
    def build_training_data_loader(self) -> Any:
        """Return a `determined.pytorch.DataLoader`."""

    @abc.abstractmethod
    def build_validation_data_loader(self) -> Any:
        """Return a `determined.pytorch.DataLoader`."""

    def build_callbacks(self) -> Dict[str, PyTorchCallback]:
        """Return callbacks, by the names under which their state is saved."""
        return {}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> Dict[str, Any]:
        """Return metrics of one batch of validation. Their mean, or what `evaluation_reducer` says, is reported.

        Args:
            batch: What the loader made, on this rank's device.
            batch_idx: The batch of this validation, counted from 0.
        """
        raise NotImplementedError("%s.evaluate_batch" % type(self).__name__)

    def evaluate_full_dataset(self, data_loader: Any) -> Dict[str, Any]:
        """Return metrics of the whole validation. The chief alone calls.

        Args:
            data_loader: Torch's loader over all validation data.
        """
        raise NotImplementedError("%s.evaluate_full_dataset" % type(self).__name__)

    def evaluation_reducer(self) -> Union[Reducer, Dict[str, Reducer]]:
        """Return how the metrics of `evaluate_batch` are reduced, all alike or each by its name."""
        return Reducer.AVG

    def get_batch_length(self, batch: Any) -> int:
        """Return the number of records in a batch."""
        return data_length(batch)


def overrides(instance: Any, method: str, base: type) -> bool:
    """Check whether an instance's class has a method of its own.

    Args:
        instance: Of a subclass of `base`.
        method: The method's name.
        base: The class whose method is none.
    """
    return getattr(type(instance), method) is not getattr(base, method)
