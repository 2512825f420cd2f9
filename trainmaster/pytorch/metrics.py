"""Metrics of batches and ranks become those that are reported."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import torch

from trainmaster.core import DistributedContext
from trainmaster.core.errors import InvalidExperiment
from trainmaster.pytorch.reducers import Reducer, reduced

Metrics = Dict[str, Any]


def as_numpy(metrics: Mapping[str, Any]) -> Metrics:
    """Return metrics without tensors, which hold on to memory of the device."""
    return {
        name: value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
        for name, value in metrics.items()
    }


def mean_over_ranks(distributed: DistributedContext, batches: List[Metrics]) -> List[Metrics]:
    """Average the metrics of each batch over the ranks. All ranks call; only the chief gets the result.

    Raises:
        ValueError: Ranks have trained different numbers of batches.
    """
    if distributed.size == 1:
        return batches
    ranks = distributed.gather(batches)
    if ranks is None:
        return []
    counts = [len(each) for each in ranks]
    if len(set(counts)) > 1:
        raise ValueError(
            "the ranks trained different numbers of batches: %s. Their loaders must be of one length"
            % ", ".join("rank %d %d" % pair for pair in enumerate(counts))
        )
    return [
        {name: _mean([each[number][name] for each in ranks]) for name in batch} for number, batch in enumerate(batches)
    ]


def mean_over_batches(batches: Sequence[Mapping[str, Any]]) -> Metrics:
    """Average metrics over batches. What has no mean is None."""
    names = list(dict.fromkeys(name for batch in batches for name in batch))
    return {name: _scalar(_mean([batch.get(name) for batch in batches])) for name in names}


def reducer_of_each(reducers: Any, names: Sequence[str], trial: str) -> Dict[str, Reducer]:
    """Return the reducer of each metric.

    Args:
        reducers: What `evaluation_reducer` returned.
        names: Of the metrics that `evaluate_batch` returned.
        trial: The class's name.

    Raises:
        InvalidExperiment: There is one that is no Reducer, or not one for each.
    """
    each = reducers if isinstance(reducers, dict) else dict.fromkeys(names, reducers)
    if set(each) != set(names):
        raise InvalidExperiment(
            "%s.evaluation_reducer() names %s, and evaluate_batch() returns %s"
            % (trial, ", ".join(sorted(each)), ", ".join(sorted(names)))
        )
    for name, reducer in each.items():
        if not isinstance(reducer, Reducer):
            raise InvalidExperiment(
                "%s.evaluation_reducer() must say a determined.pytorch.Reducer, not %r, for %r" % (trial, reducer, name)
            )
    return each


def reduce_over_all(
    distributed: DistributedContext, batches: List[Metrics], reducers: Dict[str, Reducer], names: Sequence[str]
) -> Optional[Metrics]:
    """Reduce the metrics of a validation over batches, then over ranks. All ranks call; only the chief gets them.

    Raises:
        ValueError: A metric has values that cannot be reduced.
    """
    own = {name: _reduced(reducers[name], name, [batch[name] for batch in batches], None) for name in names}
    ranks = distributed.gather((own, len(batches)))
    if ranks is None:
        return None
    # Ranks without any batch bring nothing.
    brought: List[Tuple[Metrics, int]] = [each for each in ranks if each[1]]
    weights = [count for _, count in brought]
    if len(brought) == 1:
        return brought[0][0]
    return {name: _reduced(reducers[name], name, [each[name] for each, _ in brought], weights) for name in names}


def _reduced(reducer: Reducer, name: str, values: List[Any], weights: Optional[List[int]]) -> Any:
    try:
        return reduced(reducer, np.stack([np.asarray(value) for value in values], axis=0), weights)
    except (TypeError, ValueError) as error:
        raise ValueError("the metric %r cannot be reduced by Reducer.%s: %s" % (name, reducer.name, error)) from error


def _mean(values: Sequence[Any]) -> Any:
    """Return the mean of those values that are not None; None where there is no such thing."""
    try:
        # In the precision of the values, as Determined has it.
        return np.mean(np.array([value for value in values if value is not None]))
    except (TypeError, ValueError):
        return None


def _scalar(value: Any) -> Any:
    return None if value is None else float(value)
