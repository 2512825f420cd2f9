"""Reducers: how values of many batches and ranks become one metric."""

from __future__ import annotations

import abc
import enum
import itertools
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

import numpy as np
import torch


class Reducer(enum.Enum):
    """How the values that `evaluate_batch` returns for each batch become one."""

    AVG = 1
    SUM = 2
    MAX = 3
    MIN = 4


def reduced(reducer: Reducer, values: Any, weights: Optional[Sequence[int]] = None) -> Any:
    """Reduce values to one.

    Args:
        reducer: How.
        values: One for each batch or rank, numbers or arrays of one shape.
        weights: Of each value, for AVG.
    """
    if reducer is Reducer.AVG:
        return np.average(values, weights=weights)
    others: Dict[Reducer, Callable[[Any], Any]] = {Reducer.SUM: np.sum, Reducer.MAX: np.max, Reducer.MIN: np.min}
    return others[reducer](values)


class MetricReducer(metaclass=abc.ABCMeta):
    """Base class for metrics that are no mean over batches, such as an area under a curve.

    The trial's own code gives values to it, by whatever method the subclass has for that. At the end of a stretch of
    training or of a validation each rank reduces its own values (`per_slot_reduce`), and then all ranks those of all
    (`cross_slot_reduce`).
    """

    @abc.abstractmethod
    def reset(self) -> None:
        """Forget the values. Called before each stretch and validation."""

    @abc.abstractmethod
    def per_slot_reduce(self) -> Any:
        """Return what this rank brings; anything that pickle takes."""

    @abc.abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: List[Any]) -> Any:
        """Return the metric: a value where `wrap_reducer` had a name, else a dict of names and values.

        Args:
            per_slot_metrics: What the ranks have brought, in their order.
        """


class FunctionReducer(MetricReducer):
    """A metric that a function makes of all values, in the order of the batches."""

    def __init__(self, function: Callable[[List[Any]], Any]) -> None:
        self.fn = function
        self.values: List[Any] = []

    def update(self, value: Any) -> None:
        """Add a value, once for each batch."""
        self.values.append(value)

    def reset(self) -> None:
        self.values = []

    def per_slot_reduce(self) -> Any:
        return self.values

    def cross_slot_reduce(self, per_slot_metrics: List[Any]) -> Any:
        nothing = object()
        # Batches were dealt out in turns.
        turns = itertools.zip_longest(*per_slot_metrics, fillvalue=nothing)
        return self.fn([value for turn in turns for value in turn if value is not nothing])


class TorchMetric(MetricReducer):
    """A metric of TorchMetrics, or a collection of them, which reduces the values of all ranks itself.

    Args:
        metric: Its `update` takes the values.
    """

    def __init__(self, metric: Any) -> None:
        self.metric = metric

    def reset(self) -> None:
        self.metric.reset()

    def per_slot_reduce(self) -> Any:
        return self.metric.compute()  # the same on all ranks

    def cross_slot_reduce(self, per_slot_metrics: List[Any]) -> Any:
        if len(per_slot_metrics) > 1 and not torch.distributed.is_initialized():
            raise RuntimeError("TorchMetrics reduces over ranks of torch.distributed, and there are none")
        return per_slot_metrics[0]


class _Wrapped:
    """A reducer, its metric's name, and when it counts."""

    def __init__(self, reducer: MetricReducer, name: Optional[str], training: bool, validation: bool) -> None:
        self.reducer = reducer
        self.name = name
        self.training = training
        self.validation = validation

    def __str__(self) -> str:
        function = getattr(self.reducer, "fn", None)
        what = type(self.reducer).__name__ if function is None else getattr(function, "__name__", "function") + "()"
        return "the reducer %s (name=%r)" % (what, self.name)

    def call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self.reducer, method)(*arguments)
        except Exception as error:
            raise ValueError("%s failed in %s: %s" % (self, method, error)) from error

    def metrics(self, value: Any) -> Dict[str, Any]:
        if self.name is None:
            if not isinstance(value, dict):
                raise ValueError(
                    "%s returned a %s: without a name it must return a dict of names and values"
                    % (self, type(value).__name__)
                )
            return value
        if isinstance(value, dict):
            raise ValueError("%s returned a dict: with a name it must return one value" % self)
        return {self.name: value}


class ReducerContext:
    """The reducers of a trial; a part of its context.

    Args:
        allgather: Returns the values of all ranks, in their order.
    """

    def __init__(self, allgather: Callable[[Any], List[Any]] = lambda value: [value]) -> None:
        self._reducers: List[_Wrapped] = []
        self._allgather = allgather

    def wrap_reducer(
        self,
        reducer: Union[MetricReducer, Callable[[List[Any]], Any]],
        name: Optional[str] = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> Any:
        """Add a metric that is reduced over all batches and ranks.

        Args:
            reducer: A `MetricReducer`, a function that gets the list of all values, or a metric of TorchMetrics, which
                the trial moves to its device.
            name: The metric's name. None: the reducer returns a dict of names and values.
            for_training: Whether it counts in training.
            for_validation: Whether it counts in validations.

        Returns:
            The reducer; for a function, an object with `update(value)`.

        Raises:
            ValueError: The reducer was wrapped before.
            TypeError: It is none of these.
        """
        if any(reducer is each.reducer or reducer is getattr(each.reducer, "metric", None) for each in self._reducers):
            raise ValueError("wrap_reducer() was called twice with one %s" % type(reducer).__name__)
        if isinstance(reducer, torch.nn.Module) and hasattr(reducer, "compute"):
            self._reducers.append(_Wrapped(TorchMetric(reducer), name, for_training, for_validation))
            return reducer
        if not isinstance(reducer, MetricReducer):
            if not callable(reducer):
                raise TypeError(
                    "wrap_reducer() takes a MetricReducer, a function or a TorchMetrics metric, not a %s"
                    % type(reducer).__name__
                )
            reducer = FunctionReducer(reducer)
        self._reducers.append(_Wrapped(reducer, name, for_training, for_validation))
        return reducer

    def reset_reducers(self) -> None:
        """Let all reducers forget their values."""
        for each in self._reducers:
            each.call("reset")

    def reduce_metrics(self, for_training: bool) -> Dict[str, Any]:
        """Reduce the values of all ranks. All ranks call.

        Raises:
            ValueError: A reducer failed, or returned something else than its name allows.
        """
        chosen = [each for each in self._reducers if (each.training if for_training else each.validation)]
        if not chosen:
            return {}
        ranks = self._allgather([each.call("per_slot_reduce") for each in chosen])
        metrics: Dict[str, Any] = {}
        for number, each in enumerate(chosen):
            metrics.update(each.metrics(each.call("cross_slot_reduce", [values[number] for values in ranks])))
        return metrics
