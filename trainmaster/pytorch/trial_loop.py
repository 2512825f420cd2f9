"""`TrialLoop`: trains a `PyTorchTrial`."""

from __future__ import annotations

import contextlib
import math
from typing import Any, List, Optional, Tuple

from trainmaster.core.errors import InvalidExperiment
from trainmaster.pytorch.checkpoints import TrialCheckpoints
from trainmaster.pytorch.context import PyTorchTrialContext
from trainmaster.pytorch.evaluation import Evaluation
from trainmaster.pytorch.loader import DataLoader, TrainingOrder
from trainmaster.pytorch.loop import FitLoop, FitPlan
from trainmaster.pytorch.metrics import Metrics
from trainmaster.pytorch.sharded import is_sharded
from trainmaster.pytorch.trial import PyTorchTrial


class TrialLoop(FitLoop):
    """Trains one `PyTorchTrial`.

    Args:
        trial: The user's.
        context: The one that the trial was made with.
        plan: What is due.
        latest_checkpoint: The uuid of the checkpoint to continue from.
        is_trainer: Whether the user's script made the trial, not its name as the entrypoint.

    Raises:
        InvalidExperiment: The trial wrapped no model or no optimizer, or evaluates in no way or in two.
    """

    def __init__(
        self,
        trial: PyTorchTrial,
        context: PyTorchTrialContext,
        plan: FitPlan,
        latest_checkpoint: Optional[str],
        is_trainer: bool = True,
    ) -> None:
        for what, wrapped in (("model", context.models), ("optimizer", context.optimizers)):
            if not wrapped:
                raise InvalidExperiment(
                    "%s has no %s: its __init__() must call context.wrap_%s()" % (type(trial).__name__, what, what)
                )
        if context.experimental._saves_in_background and not is_sharded(context.models):
            raise InvalidExperiment("save_in_background() needs models that are sharded with fully_shard()")
        callbacks = trial.build_callbacks()
        evaluation = Evaluation(trial, context, callbacks)
        checkpoints = TrialCheckpoints(trial, context, callbacks, is_trainer)
        super().__init__(trial, context, plan, latest_checkpoint, callbacks, evaluation, checkpoints)
        self._own = context

    def _models(self) -> List[Any]:
        return self._own.models

    def _begin(self) -> None:
        self._own._backend.begin(self._own.models, self._own.optimizers)

    def _fetch(self) -> Any:
        return next(self._batches)

    def _load_data(self) -> Tuple[Any, Any]:
        size, rank = self._ranks.size, self._ranks.rank
        any_loader = self._own.experimental._any_loader
        made = self._trial.build_training_data_loader()
        training = self._checked(made, "build_training_data_loader", any_loader)
        if isinstance(made, DataLoader):
            length = max(1, len(made) // size + int(len(made) % size > rank))
            known = self._checkpoints.order
            begun = max(known) + 1 if known else math.ceil(self._progress.trained / length)
            self._order = TrainingOrder(made.batch_sampler, size, self._ranks.broadcast, known, begun)
            seed = self._context._seed or 0
            training = made.for_training(self._order, self._progress.trained, size, rank, seed)
            length = len(made) // size + int(len(made) % size > 0)  # of the chief, which has the most
        else:
            length = self._length_of(training)
        if length < 1:
            raise InvalidExperiment("%s.build_training_data_loader() returned a loader without batches" % self._name)
        self._context._epoch_len = length
        if not self._evaluation.by_batch:
            size, rank = 1, 0
        made = self._trial.build_validation_data_loader()
        validation = self._checked(made, "build_validation_data_loader", any_loader)
        if isinstance(made, DataLoader):
            validation = made.get_data_loader(repeat=False, skip=0, num_replicas=size, rank=rank)
        return training, validation

    def _train_batch(self, fetched: Any, epoch: int, number: int) -> List[Metrics]:
        context = self._own
        batch = context.to_device(fetched) if context.experimental._auto_to_device else fetched
        with context.profiler or contextlib.nullcontext():
            returned = self._trial.train_batch(batch=batch, epoch_idx=epoch, batch_idx=number)
            if context.profiler is not None:
                context.profiler.step()
        metrics = self._metrics_of(returned)
        if context._steps():
            if context._scaler is not None and context._auto_dtype is not None:
                context._scaler.update()  # once for all optimizers
            for scheduler in context.lr_schedulers:
                scheduler.step_after(number, context._aggregation_frequency, context._length())
        return [metrics]
