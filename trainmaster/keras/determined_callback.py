"""`DeterminedCallback`: the callback of `determined.keras` 0.38.1, for scripts that have it, on Keras 3.

New scripts are better served by `TrainmasterCallback`, which leaves after any batch and continues within an epoch.
"""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any, Dict, Optional, Union

import keras

from trainmaster.core import Context, DistributedContext
from trainmaster.core.errors import CheckpointError
from trainmaster.core.plain_pickle import load_plain

_WEIGHTS, _STATE = "model_checkpoint", "callback_state"
_ENDING = ".weights.h5"  # which Keras 3 wants


class DeterminedCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Reports what Keras logs, saves and restores the model, and stops the training after an epoch when the job must
    leave.

    Validation metrics have no prefix here: `loss`, not `val_loss`.

    Args:
        core_context: What `core.init()` returned.
        checkpoint: The uuid of a checkpoint to begin with.
        continue_id: The trial's id. A checkpoint with the same one is continued; of another one only the weights are
            taken.
        train_metrics_report_period: "epoch", or a number of batches.
        checkpoint_epochs: Epochs between checkpoints; 0 for none but the last.
    """

    def __init__(
        self,
        core_context: Context,
        checkpoint: Optional[str],
        continue_id: Union[int, str],
        *,
        train_metrics_report_period: Union[int, str] = "epoch",
        checkpoint_epochs: int = 1,
    ) -> None:
        super().__init__()
        self._core = core_context
        self._is_chief = core_context.distributed.rank == 0
        self._checkpoint = checkpoint
        self._continue_id = continue_id
        self._report_period = train_metrics_report_period
        self._checkpoint_epochs = checkpoint_epochs
        self._steps = 0
        self._epoch = -1
        self._trained = self._saved = -1  # the last epochs that ended, and that were saved

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Load the checkpoint."""
        if self._checkpoint is None:
            return
        self._core.train.set_status("restoring")
        with self._core.checkpoint.restore_path(self._checkpoint) as folder:
            self.load_model(self.model, str(folder / _WEIGHTS), self._core.distributed)
            state = load_plain(folder / _STATE) if (folder / _STATE).is_file() else {}
        if state.get("continue_id") == self._continue_id:
            self._steps = int(state["steps_completed"])
            self.model._initial_epoch = int(state["epoch"]) + 1  # where `fit` reads it after this

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._epoch = epoch
        self._core.train.set_status("training")

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Report, where a number of batches is the period."""
        self._steps += 1
        if isinstance(self._report_period, int) and self._steps % self._report_period == 0:
            self._core.train.report_training_metrics(self._steps, self._counted(logs))

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Report and save; stop if asked to."""
        if self._report_period == "epoch":
            training = {name: value for name, value in (logs or {}).items() if not name.startswith("val_")}
            self._core.train.report_training_metrics(self._steps, self._counted(training))
        if self.params.get("epochs"):
            self._core.train.report_progress(min(1.0, (epoch + 1) / self.params["epochs"]))
        self._trained = epoch
        if self._checkpoint_epochs > 0 and (epoch + 1) % self._checkpoint_epochs == 0:
            self._save(epoch)
        if self._core.preempt.should_preempt():
            self.model.stop_training = True

    def on_test_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._core.train.set_status("validating")

    def on_test_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Report a validation."""
        self._core.train.report_validation_metrics(self._steps, self._counted(logs))

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Save what is not saved yet."""
        if self._trained > self._saved:
            self._save(self._trained)
        self._core.train.set_status("finishing")

    def save_model(self, model: Any, path: str, distributed: DistributedContext) -> None:
        """Save a model; for subclasses to change. All ranks call.

        Args:
            model: Keras's.
            path: Where to, without an ending.
            distributed: The ranks.
        """
        if distributed.rank == 0:
            model.save_weights(path + _ENDING)
            return
        with tempfile.TemporaryDirectory() as unused:  # some strategies let all ranks read their variables together
            model.save_weights(unused + "/" + _WEIGHTS + _ENDING)

    def load_model(self, model: Any, path: str, distributed: DistributedContext) -> None:
        """Load a model; for subclasses to change. All ranks call."""
        try:
            model.load_weights(path + _ENDING)
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError("%s does not fit the model %r: %s" % (path + _ENDING, model.name, error)) from error

    def _save(self, epoch: int) -> None:
        self._saved = epoch
        self._core.train.set_status("checkpointing")
        with self._core.checkpoint.store_path({"steps_completed": self._steps}, shard=True) as (folder, _):
            self.save_model(self.model, str(folder / _WEIGHTS), self._core.distributed)
            if self._is_chief:
                state: Dict[str, Any] = {
                    "epoch": epoch,
                    "steps_completed": self._steps,
                    "continue_id": self._continue_id,
                }
                state.update(training_length=None, validation_length=None)  # which the published package reads
                Path(folder / _STATE).write_bytes(pickle.dumps(state, protocol=4))

    def _counted(self, logs: Optional[Dict[str, Any]]) -> Dict[str, Any]:
        metrics = {name: value for name, value in (logs or {}).items() if name not in ("batch", "size")}
        metrics.setdefault("epochs", self._epoch + 1)
        metrics.setdefault("batches", self._steps)
        return metrics


class TensorBoard(keras.callbacks.TensorBoard):  # type: ignore[misc]
    """Keras's own, into the folder whose files are copied to the checkpoint storage.

    Args:
        core_context: What `core.init()` returned.
        arguments: Of Keras's callback; `log_dir` is replaced.
    """

    def __init__(self, core_context: Context, *arguments: Any, **named: Any) -> None:
        named.pop("log_dir", None)
        super().__init__(str(core_context.train.get_tensorboard_path()), *arguments[1:], **named)
