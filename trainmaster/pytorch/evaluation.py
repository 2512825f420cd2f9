"""Validates a trial: by batches on all ranks, or over the whole data set on the chief."""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, Mapping, Optional

import torch

from trainmaster.core.errors import InvalidExperiment
from trainmaster.pytorch.callback import PyTorchCallback
from trainmaster.pytorch.metrics import Metrics, as_numpy, reduce_over_all, reducer_of_each
from trainmaster.pytorch.trial import PyTorchTrial, overrides
from trainmaster.pytorch.trial_context import TrialContext


class Evaluation:
    """The validations of one trial.

    Args:
        trial: The user's.
        context: Its context.
        callbacks: Its callbacks.

    Raises:
        InvalidExperiment: The trial evaluates in no way, or in two.
    """

    base: type = PyTorchTrial

    def __init__(self, trial: Any, context: TrialContext, callbacks: Mapping[str, PyTorchCallback]) -> None:
        self._trial = trial
        self._name = type(trial).__name__
        self._context = context
        self._ranks = context.distributed
        self._callbacks = callbacks
        self.by_batch = overrides(trial, "evaluate_batch", self.base)
        by_dataset = overrides(trial, "evaluate_full_dataset", self.base)
        if self.by_batch == by_dataset:
            raise InvalidExperiment(
                "%s must define either evaluate_batch() or evaluate_full_dataset(), and defines %s"
                % (self._name, "both" if by_dataset else "neither")
            )

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def run(self, loader: Any, only_one: bool) -> Metrics:
        """Validate. All ranks call.

        Args:
            loader: Torch's, of this rank's share.
            only_one: Whether one batch will do.

        Returns:
            The metrics, on the chief; on the others too where a callback wants them.
        """
        self._context.reset_reducers()
        for model in getattr(self._context, "models", ()):
            model.eval()
        for callback in self._callbacks.values():
            callback.on_validation_start()
        metrics = self._batches(loader, only_one) if self.by_batch else self._dataset(loader)
        metrics.update(as_numpy(self._context.reduce_metrics(for_training=False)))
        if any(overrides(each, "on_validation_end", PyTorchCallback) for each in self._callbacks.values()):
            metrics = self._ranks.broadcast(metrics if self._ranks.rank == 0 else None)
        for callback in self._callbacks.values():
            callback.on_validation_end(metrics)
        return metrics

    def searcher_metric(self, name: Optional[str], metrics: Mapping[str, Any]) -> float:
        """Return the metric by which the search compares trials.

        Raises:
            ValueError: The trial does not return it, or it is no number.
        """
        if name is None or name not in metrics:
            raise ValueError(
                "the searcher waits for the metric %r, which %s does not return; it returns: %s"
                % (name, self._name, ", ".join(sorted(metrics)) or "nothing")
            )
        try:
            return float(metrics[name])
        except (TypeError, ValueError):
            raise ValueError(
                "the searcher's metric %r is no number but %r, which %s returns" % (name, metrics[name], self._name)
            ) from None

    def _batches(self, loader: Any, only_one: bool) -> Metrics:
        for callback in self._callbacks.values():
            callback.on_validation_epoch_start()
        numbered = "batch_idx" in inspect.signature(self._trial.evaluate_batch).parameters
        outputs: List[Metrics] = []
        for number, batch in enumerate(loader):
            batch = self._moved(batch)
            arguments = {"batch": batch, "batch_idx": number} if numbered else {"batch": batch}
            outputs.append(self._checked(self._trial.evaluate_batch(**arguments), outputs))
            if only_one:
                break
        for callback in self._callbacks.values():
            callback.on_validation_epoch_end(outputs)
        # Of a rank that has a batch: there may be more ranks than batches.
        names = next((each for each in self._ranks.allgather([list(each) for each in outputs[:1]]) if each), None)
        if names is None:
            raise InvalidExperiment("%s.build_validation_data_loader() returned a loader without batches" % self._name)
        reducers = reducer_of_each(self._trial.evaluation_reducer(), names[0], self._name)
        return reduce_over_all(self._ranks, outputs, reducers, names[0]) or {}

    def _moved(self, batch: Any) -> Any:
        experimental = getattr(self._context, "experimental", None)
        return self._context.to_device(batch) if experimental is not None and experimental._auto_to_device else batch

    def _checked(self, metrics: Any, before: List[Metrics]) -> Metrics:
        if not isinstance(metrics, dict):
            raise TypeError(
                "%s.evaluate_batch() must return a dict of metrics, not a %s" % (self._name, type(metrics).__name__)
            )
        if before and set(metrics) != set(before[0]):
            raise ValueError(
                "%s.evaluate_batch() returned %s for batch %d, and %s for the first one"
                % (self._name, ", ".join(sorted(metrics)), len(before), ", ".join(sorted(before[0])))
            )
        return as_numpy(metrics)

    def _dataset(self, loader: Any) -> Dict[str, Any]:
        if self._ranks.rank != 0:
            return {}
        metrics = self._trial.evaluate_full_dataset(data_loader=loader)
        if not isinstance(metrics, dict):
            raise TypeError(
                "%s.evaluate_full_dataset() must return a dict of metrics, not a %s"
                % (self._name, type(metrics).__name__)
            )
        return as_numpy(metrics)
