"""`EngineLoop`: trains a `DeepSpeedTrial`. A batch is an optimizer step, of several micro batches."""

from __future__ import annotations

import contextlib
import inspect
import math
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

import torch

from trainmaster.core.errors import CheckpointError, InvalidExperiment
from trainmaster.pytorch import files
from trainmaster.pytorch.callback import PyTorchCallback
from trainmaster.pytorch.checkpoints import Progress, TrialCheckpoints
from trainmaster.pytorch.deepspeed.context import DeepSpeedTrialContext
from trainmaster.pytorch.deepspeed.trial import DeepSpeedTrial
from trainmaster.pytorch.evaluation import Evaluation
from trainmaster.pytorch.loader import DataLoader, TrainingOrder
from trainmaster.pytorch.loop import FitLoop, FitPlan
from trainmaster.pytorch.metrics import Metrics, reduce_over_all, reducer_of_each


class EngineLoop(FitLoop):
    """Trains one `DeepSpeedTrial`.

    Args:
        trial: The user's.
        context: The one that the trial was made with.
        plan: What is due.
        latest_checkpoint: The uuid of the checkpoint to continue from.

    Raises:
        InvalidExperiment: The trial wrapped no engine, or evaluates in no way or in two.
    """

    def __init__(
        self, trial: DeepSpeedTrial, context: DeepSpeedTrialContext, plan: FitPlan, latest_checkpoint: Optional[str]
    ) -> None:
        if not context.models:
            raise InvalidExperiment(
                "%s has no engine: its __init__() must call context.wrap_model_engine()" % type(trial).__name__
            )
        callbacks = trial.build_callbacks()
        evaluation = EngineEvaluation(trial, context, callbacks)
        checkpoints = EngineCheckpoints(trial, context, callbacks)
        super().__init__(trial, context, plan, latest_checkpoint, callbacks, evaluation, checkpoints)
        self._own = context

    def _models(self) -> List[Any]:
        return self._own.models

    def _load_data(self) -> Tuple[Any, Any]:
        place, micro = self._own._mpu, self._own.get_num_micro_batches_per_slot()
        training = validation = None
        length: Optional[int] = None
        if place.should_build_data_loader:
            size, rank = place.data_parallel_world_size, place.data_parallel_rank
            made = self._trial.build_training_data_loader()
            training = self._checked(made, "build_training_data_loader", self._own._any_loader)
            length = self._length_of_one(made)
            if isinstance(made, DataLoader):
                length = len(made) // size + int(len(made) % size > 0)
                done = self._progress.trained * micro
                known = self._checkpoints.order
                begun = max(known) + 1 if known else math.ceil(done / max(1, length))
                # Not all ranks read data: none can wait for the others.
                self._order = TrainingOrder(made.batch_sampler, size, None, known, begun)
                training = made.for_training(self._order, done, size, rank, self._own._seed or 0)
            made = self._trial.build_validation_data_loader()
            validation = self._checked(made, "build_validation_data_loader", self._own._any_loader)
            if isinstance(made, DataLoader):
                if not self._evaluation.by_batch:
                    size, rank = 1, 0
                validation = made.get_data_loader(repeat=False, skip=0, num_replicas=size, rank=rank)
        lengths = [each for each in self._ranks.allgather(length) if each is not None]
        if not lengths or min(lengths) < micro:
            raise InvalidExperiment(
                "%s.build_training_data_loader() returned fewer batches than an optimizer step takes (%d)"
                % (self._name, micro)
            )
        self._own._epoch_len = min(lengths) // micro
        return training, validation

    def _length_of_one(self, loader: Any) -> int:
        inner = getattr(loader, "loader", loader)  # of DeepSpeed's RepeatingLoader, which has no length
        return len(inner)

    def _fetch(self) -> Any:
        return self._batches if self._own._mpu.should_build_data_loader else None

    def _train_batch(self, fetched: Any, epoch: int, number: int) -> List[Metrics]:
        once = self._own.use_pipeline_parallel or self._own._manual_accumulation
        metrics: List[Metrics] = []
        for _ in range(1 if once else self._own.get_num_micro_batches_per_slot()):
            with self._own.profiler or contextlib.nullcontext():
                returned = self._trial.train_batch(fetched, epoch, number)
                if self._own.profiler is not None:
                    self._own.profiler.step()
            if self._own._mpu.should_report_metrics:
                metrics.append(self._metrics_of(returned))
        engine = self._own.models[0]
        micro = self._own.get_num_micro_batches_per_slot()
        if not self._own.use_pipeline_parallel and engine.micro_steps % micro:
            raise InvalidExperiment(
                "%s.train_batch() has trained %d micro batches, which is no multiple of the %d of an optimizer step"
                % (self._name, engine.micro_steps, micro)
            )
        return metrics


class EngineEvaluation(Evaluation):
    """The validations of a `DeepSpeedTrial`, which fetches its batches itself."""

    base = DeepSpeedTrial

    def _batches(self, loader: Any, only_one: bool) -> Metrics:
        context: Any = self._context
        for callback in self._callbacks.values():
            callback.on_validation_epoch_start()
        count = None if loader is None else len(getattr(loader, "loader", loader))
        counts = [each for each in self._ranks.allgather(count) if each is not None]
        # Those that all ranks have; of a pipeline, whole steps.
        number = min(counts, default=0) // (
            context.get_num_micro_batches_per_slot() if context.use_pipeline_parallel else 1
        )
        if number < 1:
            raise InvalidExperiment("%s.build_validation_data_loader() returned too few batches" % self._name)
        batches = None if loader is None else iter(loader)
        numbered = len(inspect.signature(self._trial.evaluate_batch).parameters) > 1
        outputs: List[Metrics] = []
        for index in range(1 if only_one else number):
            returned = self._trial.evaluate_batch(batches, index) if numbered else self._trial.evaluate_batch(batches)
            if context._mpu.should_report_metrics:
                outputs.append(self._checked(returned, outputs))
        for callback in self._callbacks.values():
            callback.on_validation_epoch_end(outputs)
        reported = self._ranks.allgather([list(each) for each in outputs[:1]])
        names: List[str] = next((each[0] for each in reported if each), [])
        reducers = reducer_of_each(self._trial.evaluation_reducer(), names, self._name)
        return reduce_over_all(self._ranks, outputs, reducers, names) or {}


class EngineCheckpoints(TrialCheckpoints):
    """The checkpoints of a `DeepSpeedTrial`: each rank writes its part of the engines, its callbacks and its random
    numbers."""

    def __init__(
        self, trial: DeepSpeedTrial, context: DeepSpeedTrialContext, callbacks: Mapping[str, PyTorchCallback]
    ) -> None:
        super().__init__(trial, context, callbacks, is_trainer=False)
        self._trial = trial
        self._own = context

    def restore(self) -> None:
        if self._folder is None:
            return
        own, chiefs = (self._folder / _of_rank(rank) for rank in (self._ranks.rank, 0))
        path = own if own.is_file() else chiefs
        if not path.is_file():
            raise CheckpointError("%s has no %s: it is no checkpoint of a DeepSpeedTrial" % (self._folder, path.name))
        state = files.load_file(path)
        for callback in self._callbacks.values():
            callback.on_checkpoint_load_start(state)
        self._trial.load(self._own, self._folder)
        self._restore_callbacks(state)
        if own.is_file() and "rng_state" in state:
            files.set_chiefs_random_numbers(state["rng_state"], self._ranks.local_rank)

    def save(self, progress: Progress, order: Dict[int, Any]) -> None:
        progress.saved_at = progress.trained
        self._core.train.set_status("checkpointing")
        orders = self._ranks.gather(order)
        with self._core.checkpoint.store_path(self._metadata(progress), shard=True) as (folder, uuid):
            state = {
                "callbacks": {name: callback.state_dict() for name, callback in self._callbacks.items()},
                "rng_state": files.chiefs_random_numbers(self._ranks.local_rank),
            }
            for callback in self._callbacks.values():
                callback.on_checkpoint_save_start(state)
            torch.save(state, str(folder / _of_rank(self._ranks.rank)))
            self._trial.save(self._own, folder)
            if orders is not None:
                torch.save({"order": next((each for each in orders if each), {})}, str(folder / files.RANKS))
                self._write_common(folder, progress)
            for callback in self._callbacks.values():
                callback.on_checkpoint_end(str(folder))
                callback.on_checkpoint_write_end(str(folder))
        for callback in self._callbacks.values():
            callback.on_checkpoint_upload_end(uuid=str(uuid))

    def _write_common(self, folder: Path, progress: Progress) -> None:
        self._write_code(folder)
        self._write_progress(folder, progress)
        files.write_loading(folder, None, self._own._config, self._own._hparams, False, "DeepSpeedTrial")


def _of_rank(rank: int) -> str:
    return "det_state_dict_rank%d.pth" % rank
