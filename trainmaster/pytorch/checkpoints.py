"""Saves a trial and brings it back: its parts, how far it is, and all random numbers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

import torch

from trainmaster.core.errors import InvalidExperiment
from trainmaster.pytorch import files
from trainmaster.pytorch.callback import PyTorchCallback
from trainmaster.pytorch.random_numbers import all_states, set_all_states
from trainmaster.pytorch.sharded import FOLDER, ShardedParts, is_sharded, sharded_parts
from trainmaster.pytorch.trial import overrides

logger = logging.getLogger("trainmaster.pytorch")

VERSION = "0.38.1"  # of Determined, whose checkpoints these are


class Progress:
    """How far a trial is.

    Attributes:
        trained: Batches since its start.
        epochs: Those that are complete.
        saved_at: After how many batches it was saved last; None where it was not.
        validated_at: After how many it was validated last.
    """

    def __init__(self) -> None:
        self.trained = 0
        self.epochs = 0
        self.saved_at: Optional[int] = None
        self.validated_at: Optional[int] = None


class TrialCheckpoints:
    """The checkpoints of one trial.

    Args:
        trial: The user's.
        context: Its context.
        callbacks: Its callbacks.
        is_trainer: Whether the user's script made the trial, not its name as the entrypoint.
    """

    def __init__(
        self,
        trial: Any,
        context: Any,
        callbacks: Mapping[str, PyTorchCallback],
        is_trainer: bool,
    ) -> None:
        self._trial_class = type(trial)
        self._context = context
        self._core = context._core
        self._ranks = context.distributed
        self._callbacks = callbacks
        self._is_trainer = is_trainer
        self._folder: Optional[Path] = None
        self._unannounced: Optional[str] = None  # a checkpoint of which callbacks do not know yet
        self._of_ranks: Dict[str, Any] = {}

    def find(self, uuid: Optional[str]) -> Progress:
        """Find the checkpoint to continue from.

        Returns:
            How far this trial is; at its start where there is no checkpoint, or another trial's, which gives it its
            first weights.

        Raises:
            CheckpointError: There is no checkpoint of this uuid, or it is none of a trial.
        """
        progress = Progress()
        if uuid is None:
            return progress
        with self._core.checkpoint.restore_path(uuid) as folder:
            self._folder = folder
            stored = files.load_progress(folder)
            if stored is None or stored.get("trial_id") != self._context.get_trial_id():
                return progress
            # Releases up to 0.21 counted steps.
            progress.trained = stored.get("batches_trained", stored.get("steps_completed", 0))
            progress.epochs = stored.get("epochs_trained", 0)
            progress.saved_at = stored.get("last_ckpt")
            progress.validated_at = stored.get("last_val") or None
            self._of_ranks = files.load_ranks(folder) or {}
        return progress

    @property
    def order(self) -> Dict[int, Any]:
        """What `TrainingOrder.drawn` was when the checkpoint was saved."""
        order: Dict[int, Any] = self._of_ranks.get("order", {})
        return order

    def restore(self) -> None:
        """Load the checkpoint that `find` has found, if any. All ranks call.

        Raises:
            CheckpointError: It does not fit the trial.
            InvalidExperiment: It has another number of models, optimizers or schedulers.
        """
        if self._folder is None:
            return
        context = self._context
        state = files.load_state(self._folder)
        for callback in self._callbacks.values():
            callback.on_checkpoint_load_start(state)
        self._restore_parts(self._folder, state)
        self._restore_callbacks(state)
        if context._scaler is not None and "scaler_state_dict" in state:
            context._scaler.load_state_dict(state["scaler_state_dict"])
        elif (context._scaler is None) == ("scaler_state_dict" in state):
            logger.warning("of the checkpoint and this trial, only one has a gradient scaler")
        if "rng_state" in state:
            files.set_chiefs_random_numbers(state["rng_state"], self._ranks.local_rank)
        random_numbers: List[Any] = self._of_ranks.get("random", [])
        if len(random_numbers) == self._ranks.size:
            set_all_states(random_numbers[self._ranks.rank])

    def save(self, progress: Progress, order: Dict[int, Any]) -> None:
        """Store a checkpoint. All ranks call.

        Args:
            progress: How far the trial is.
            order: `TrainingOrder.drawn`.
        """
        self.finish()
        progress.saved_at = progress.trained
        ranks = self._ranks.gather(all_states())
        if ranks is not None:
            self._core.train.set_status("checkpointing")
        uuid: Optional[str] = None
        if is_sharded(self._context.models):
            background = self._context.experimental._saves_in_background

            def begin(folder: Path) -> Callable[[], None]:
                if ranks is not None:
                    self._write(folder, progress, {"random": ranks, "order": order})
                return self._sharded_parts().begin_to_save(folder, background=background)

            self._unannounced = self._core.checkpoint.store_in_background(self._metadata(progress), begin)
            if not background:
                self.finish()
            return
        if ranks is not None:
            with self._core.checkpoint.store_path(self._metadata(progress)) as (folder, uuid):
                self._write(folder, progress, {"random": ranks, "order": order})
        self._announce(self._ranks.broadcast(uuid))

    def finish(self) -> None:
        """Wait for a checkpoint in the background. All ranks call.

        Raises:
            CheckpointError: It could not be stored.
        """
        self._core.checkpoint.wait()
        if self._unannounced is not None:
            uuid, self._unannounced = self._unannounced, None
            self._announce(uuid)

    def _announce(self, uuid: Any) -> None:
        for callback in self._callbacks.values():
            callback.on_checkpoint_upload_end(uuid=str(uuid))

    def _sharded_parts(self) -> ShardedParts:
        return sharded_parts(self._context.models, self._context.optimizers)

    def _write(self, folder: Path, progress: Progress, ranks: Dict[str, Any]) -> None:
        context = self._context
        self._write_code(folder)
        # Sharded ones have files of their own, by all ranks.
        whole = not is_sharded(context.models)
        state: Dict[str, Any] = {
            "models_state_dict": [model.state_dict() for model in context.models if whole],
            "optimizers_state_dict": [optimizer.state_dict() for optimizer in context.optimizers if whole],
            "lr_schedulers_state_dict": [scheduler.state_dict() for scheduler in context.lr_schedulers],
            "callbacks": {name: callback.state_dict() for name, callback in self._callbacks.items()},
            "rng_state": files.chiefs_random_numbers(self._ranks.local_rank),
        }
        if context._scaler is not None:
            state["scaler_state_dict"] = context._scaler.state_dict()
        for callback in self._callbacks.values():
            callback.on_checkpoint_save_start(state)
        torch.save(state, str(folder / files.STATE))
        torch.save(ranks, str(folder / files.RANKS))
        self._write_progress(folder, progress)
        files.write_loading(folder, self._trial_class, context._config, context._hparams, self._is_trainer)
        for callback in self._callbacks.values():
            callback.on_checkpoint_end(str(folder))
            callback.on_checkpoint_write_end(str(folder))

    def _restore_callbacks(self, state: Dict[str, Any]) -> None:
        for name, callback in self._callbacks.items():
            if name in (state.get("callbacks") or {}):
                callback.load_state_dict(state["callbacks"][name])
            elif overrides(callback, "load_state_dict", PyTorchCallback):
                logger.warning("the checkpoint holds nothing of the callback %r, which begins anew", name)

    def _metadata(self, progress: Progress) -> Dict[str, Any]:
        return {
            "determined_version": VERSION,
            "steps_completed": progress.trained,
            "framework": "torch-%s" % torch.__version__,
            "format": "pickle",
        }

    def _write_code(self, folder: Path) -> None:
        info = self._core.info
        files.write_code(folder, None if info is None or info.runtime_info is None else info.runtime_info.run_dir)

    def _write_progress(self, folder: Path, progress: Progress) -> None:
        files.write_progress(
            folder,
            {
                "trial_id": self._context.get_trial_id(),
                "last_ckpt": progress.trained,
                "step_id": 0,
                "last_val": progress.validated_at or 0,
                "batches_trained": progress.trained,
                "epochs_trained": progress.epochs,
            },
        )

    def _restore_parts(self, folder: Path, state: Dict[str, Any]) -> None:
        context = self._context
        load: Callable[[Any, Any, str], None]
        kinds = [
            (context.models, "models_state_dict", "model_state_dict", files.load_model),
            (context.optimizers, "optimizers_state_dict", "optimizer_state_dict", files.load_part),
            (context.lr_schedulers, "lr_schedulers_state_dict", "lr_scheduler", files.load_part),
        ]
        if is_sharded(context.models) or (folder / FOLDER).is_dir():
            self._sharded_parts().load(folder)
            del kinds[:2]
        for parts, plural, singular, load in kinds:
            stored = files.several(state, plural, singular)
            what = plural.split("_state")[0].replace("_", " ")
            if len(stored) != len(parts):
                raise InvalidExperiment(
                    "the checkpoint has %d %s, and %s wraps %d"
                    % (len(stored), what, self._trial_class.__name__, len(parts))
                )
            for number, part in enumerate(parts):
                load(part, stored[number], "%s's %s %d" % (self._trial_class.__name__, what[:-1], number))
