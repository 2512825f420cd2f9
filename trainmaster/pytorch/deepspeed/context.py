"""`DeepSpeedTrialContext`: what a `DeepSpeedTrial` gets when it is made."""

from __future__ import annotations

import copy
import json
import logging
from typing import Any, Dict, List, Optional, Union

import deepspeed
import torch

from trainmaster.core import Context
from trainmaster.core.errors import InvalidExperiment
from trainmaster.pytorch.deepspeed.mpu import ModelParallelUnit, make_data_parallel_mpu, make_deepspeed_mpu
from trainmaster.pytorch.trial_context import TrialContext

logger = logging.getLogger("trainmaster.pytorch")


def overwrite_deepspeed_config(base_ds_config: Union[str, Dict[str, Any]], source_ds_dict: Dict[str, Any]) -> Any:
    """Change a configuration of DeepSpeed.

    Args:
        base_ds_config: The configuration, or the path of its JSON file.
        source_ds_dict: What is different, nested as there.

    Returns:
        A new configuration.

    Raises:
        TypeError: `base_ds_config` is neither.
    """
    if isinstance(base_ds_config, str):
        with open(base_ds_config, encoding="utf-8") as file:
            base_ds_config = json.load(file)
    if not isinstance(base_ds_config, dict):
        raise TypeError("a configuration of DeepSpeed is a dict or the path of one, not %r" % (base_ds_config,))
    return _merged(base_ds_config, source_ds_dict)


class DeepSpeedTrialContext(TrialContext):
    """Takes a trial's DeepSpeed engines.

    Attributes:
        models: The engines that were wrapped.
        use_pipeline_parallel: Whether they are pipelines.

    Args:
        core: The contexts of the job.
        more: Those of every trial context.
    """

    def __init__(self, core: Context, **more: Any) -> None:
        super().__init__(core, _device(core.distributed.local_rank), **more)
        self.models: List[Any] = []
        self.use_pipeline_parallel = False
        self._mpu = make_data_parallel_mpu(self.distributed)
        self._set_mpu = False
        self._any_loader = False
        self._manual_accumulation = False

    def wrap_model_engine(self, model: Any) -> Any:
        """Take an engine that `deepspeed.initialize` made. The first one's batch sizes count.

        Returns:
            The engine.
        """
        model = model.to(self.device)
        if isinstance(model, deepspeed.PipelineEngine):
            self.use_pipeline_parallel = True
            if not self.models:
                self._mpu = make_deepspeed_mpu(model.mpu)
        if self.models and model.train_micro_batch_size_per_gpu() != self.get_train_micro_batch_size_per_gpu():
            logger.warning("the engines have different micro batch sizes; that of the first one counts")
        self.models.append(model)
        return model

    def set_mpu(self, mpu: ModelParallelUnit) -> None:
        """Say which part of the model this rank holds, where DeepSpeed itself does not know.

        Raises:
            InvalidExperiment: No engine was wrapped before, or this was called before.
        """
        if not self.models:
            raise InvalidExperiment("set_mpu() must be called after wrap_model_engine()")
        if self._set_mpu:
            raise InvalidExperiment("set_mpu() was called twice")
        self._set_mpu = True
        self._mpu = mpu

    def disable_auto_grad_accumulation(self) -> None:
        """Call `train_batch` once for each optimizer step, which then trains all micro batches itself."""
        self._manual_accumulation = True

    def disable_dataset_reproducibility_checks(self) -> None:
        """Allow any loader, such as the one that `deepspeed.initialize` makes. It must begin again at its end."""
        self._any_loader = True

    def get_train_micro_batch_size_per_gpu(self) -> int:
        """Return the size of one micro batch of one rank.

        Raises:
            InvalidExperiment: No engine was wrapped before.
        """
        return int(self._first().train_micro_batch_size_per_gpu())

    def get_num_micro_batches_per_slot(self) -> int:
        """Return the number of micro batches in an optimizer step.

        Raises:
            InvalidExperiment: No engine was wrapped before.
        """
        return int(self._first().gradient_accumulation_steps())

    train_micro_batch_size_per_gpu = property(get_train_micro_batch_size_per_gpu)
    num_micro_batches_per_slot = property(get_num_micro_batches_per_slot)

    def _first(self) -> Any:
        if not self.models:
            raise InvalidExperiment("the batch sizes are those of an engine: call wrap_model_engine() first")
        return self.models[0]


def _device(local_rank: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def _merged(base: Dict[str, Any], changes: Dict[str, Any]) -> Dict[str, Any]:
    merged = copy.deepcopy(base)
    for name, value in changes.items():
        old: Optional[Any] = merged.get(name)
        merged[name] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
