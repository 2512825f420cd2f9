"""`ModelParallelUnit`: which ranks hold the same part of a model, and which of them read data and report."""

from __future__ import annotations

import dataclasses
from typing import Any

from trainmaster.core import DistributedContext


@dataclasses.dataclass
class ModelParallelUnit:
    """This rank's place.

    Attributes:
        data_parallel_rank: Among the ranks that hold the same part of the model.
        data_parallel_world_size: How many these are.
        should_report_metrics: Whether what `train_batch` and `evaluate_batch` return on this rank counts.
        should_build_data_loader: Whether this rank reads data.
    """

    data_parallel_rank: int
    data_parallel_world_size: int
    should_report_metrics: bool
    should_build_data_loader: bool


def make_data_parallel_mpu(distributed: DistributedContext) -> ModelParallelUnit:
    """Return the place of a rank that holds the whole model, as all do."""
    return ModelParallelUnit(distributed.rank, distributed.size, True, True)


def make_deepspeed_mpu(grid: Any) -> ModelParallelUnit:
    """Return the place of a rank in a pipeline: its first and last stages read data.

    Args:
        grid: DeepSpeed's PipelineParallelGrid.
    """
    stage, last = grid.get_pipe_parallel_rank(), grid.get_pipe_parallel_world_size() - 1
    return ModelParallelUnit(
        data_parallel_rank=grid.get_data_parallel_rank(),
        data_parallel_world_size=grid.get_data_parallel_world_size(),
        should_report_metrics=True,
        should_build_data_loader=grid.get_slice_parallel_rank() == 0 and stage in (0, last),
    )
