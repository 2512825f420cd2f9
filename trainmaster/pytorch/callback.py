"""`PyTorchCallback`: what a trial can do at the turning points of its training."""

from __future__ import annotations

from typing import Any, Dict, List, Optional


class PyTorchCallback:
    """Base class of a trial's callbacks, which `PyTorchTrial.build_callbacks` returns.

    Every rank runs its own copy. What a callback remembers must be in its `state_dict`, or is lost when the trial
    continues in another job.
    """

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: Optional[str]) -> None:
        """Run before anything else.

        Args:
            first_batch_idx: The batch with which the training begins; above 0 where it continues.
            checkpoint_uuid: The checkpoint that will be loaded.
        """

    def on_trial_shutdown(self) -> None:
        """Run before the process ends, also where the training is only interrupted, but not where it is killed."""

    def on_training_start(self) -> None:
        """Run when the checkpoint is loaded, before the first batch."""

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        """Run before the first batch of an epoch."""

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        """Run after the last batch of an epoch."""

    def on_training_workload_end(self, avg_metrics: Dict[str, Any], batch_metrics: List[Dict[str, Any]]) -> None:
        """Run after each stretch of batches between two reports, validations or checkpoints.

        Args:
            avg_metrics: The mean over batches and ranks.
            batch_metrics: Of each batch, the mean over ranks.
        """

    def on_validation_start(self) -> None:
        """Run before a validation."""

    def on_validation_epoch_start(self) -> None:
        """Run before the first batch of a validation by `evaluate_batch`."""

    def on_validation_epoch_end(self, outputs: List[Any]) -> None:
        """Run after the last batch of a validation by `evaluate_batch`.

        Args:
            outputs: What each call has returned on this rank.
        """

    def on_validation_end(self, metrics: Dict[str, Any]) -> None:
        """Run after a validation, with its reduced metrics."""

    def on_checkpoint_load_start(self, checkpoint: Dict[str, Any]) -> None:
        """Run before a checkpoint is loaded; may change it."""

    def on_checkpoint_save_start(self, checkpoint: Dict[str, Any]) -> None:
        """Run on the chief before a checkpoint is written; may change it."""

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """Run on the chief when a checkpoint's files are written. The older name of `on_checkpoint_write_end`."""

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        """Run on the chief when a checkpoint's files are written; may add files."""

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        """Run when a checkpoint is stored."""

    def state_dict(self) -> Dict[str, Any]:
        """Return what must be saved of this callback."""
        return {}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Take what was saved of this callback."""
