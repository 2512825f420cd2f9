"""`DeepSpeedTrial`: a training as a class, whose engines DeepSpeed makes."""

from __future__ import annotations

import abc
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Union

from trainmaster.core.errors import CheckpointError
from trainmaster.pytorch.callback import PyTorchCallback
from trainmaster.pytorch.deepspeed.context import DeepSpeedTrialContext
from trainmaster.pytorch.loader import data_length
from trainmaster.pytorch.reducers import Reducer


class DeepSpeedTrial(metaclass=abc.ABCMeta):
    """Base class of a training with DeepSpeed. The interface is that of Determined 0.38.1."""

    @abc.abstractmethod
    def __init__(self, context: DeepSpeedTrialContext) -> None:
        """Make engines with `deepspeed.initialize`, and wrap them with `context.wrap_model_engine`."""

    @abc.abstractmethod
    def train_batch(self, dataloader_iter: Optional[Iterator[Any]], epoch_idx: int, batch_idx: int) -> Any:
        """Train one micro batch: fetch it, `engine.backward(loss)`, `engine.step()`. With pipelines, and after
        `disable_auto_grad_accumulation`, all micro batches of an optimizer step.

        Args:
            dataloader_iter: Yields micro batches; None on ranks that read no data.
            epoch_idx: The epoch, counted from 0.
            batch_idx: The optimizer step since the start of the trial, counted from 0.

        Returns:
            The loss, or a dict of metrics.
        """

    @abc.abstractmethod
    def build_training_data_loader(self) -> Any:
        """Return a `determined.pytorch.DataLoader` of micro batches."""

    @abc.abstractmethod
    def build_validation_data_loader(self) -> Any:
        """Return a `determined.pytorch.DataLoader` of micro batches."""

    def build_callbacks(self) -> Dict[str, PyTorchCallback]:
        """Return callbacks, by the names under which their state is saved."""
        return {}

    def evaluate_batch(self, dataloader_iter: Optional[Iterator[Any]], batch_idx: int) -> Dict[str, Any]:
        """Return metrics of one micro batch of validation; with pipelines, of as many as an optimizer step has."""
        raise NotImplementedError("%s.evaluate_batch" % type(self).__name__)

    def evaluate_full_dataset(self, data_loader: Any) -> Dict[str, Any]:
        """Return metrics of the whole validation. The chief alone calls."""
        raise NotImplementedError("%s.evaluate_full_dataset" % type(self).__name__)

    def evaluation_reducer(self) -> Union[Reducer, Dict[str, Reducer]]:
        """Return how the metrics of `evaluate_batch` are reduced, all alike or each by its name."""
        return Reducer.AVG

    def save(self, context: DeepSpeedTrialContext, path: Path) -> None:
        """Write the engines' checkpoints. All ranks call; each writes its part."""
        for number, engine in enumerate(context.models):
            engine.save_checkpoint(str(path), tag="model%d" % number)

    def load(self, context: DeepSpeedTrialContext, load_path: Path) -> None:
        """Read the engines' checkpoints. All ranks call.

        Raises:
            CheckpointError: They do not fit.
        """
        for number, engine in enumerate(context.models):
            try:
                found, _ = engine.load_checkpoint(str(load_path), tag="model%d" % number)
            except (AssertionError, KeyError, RuntimeError, ValueError) as error:
                raise CheckpointError(
                    "the checkpoint does not fit engine %d of %s: %s" % (number, type(self).__name__, error)
                ) from error
            if found is None:
                raise CheckpointError("%s holds nothing of engine %d" % (load_path, number))

    def get_batch_length(self, batch: Any) -> int:
        """Return the number of records in a batch."""
        return data_length(batch)
