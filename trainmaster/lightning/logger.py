"""`TrainmasterLogger`: reports what a Lightning module logs."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from trainmaster.core import Context
from trainmaster.core.session import Session
from trainmaster.lightning.package import FRAMEWORK, LOWEST, VERSION, pl

_GROUPS = {"train": "training", "validate": "validation", "test": "test", "predict": "predict"}


class TrainmasterLogger(pl.loggers.Logger):  # type: ignore[misc]
    """Reports logged metrics under their own names. The callback adds one to its trainer; alone it serves scripts that
    want reports and nothing else.

    Args:
        context: The script's own context, where it has one. Default: one that the logger opens and closes.
    """

    def __init__(self, context: Optional[Context] = None) -> None:
        super().__init__()
        self._session = Session(FRAMEWORK, VERSION, context, LOWEST)
        self._trainer: Any = None

    @classmethod
    def of(cls, session: Session, trainer: Any) -> TrainmasterLogger:
        """Return the logger of a callback, which has the session and the trainer."""
        logger = cls()
        logger._session = session
        logger._trainer = trainer
        return logger

    @property
    def name(self) -> str:
        return "trainmaster"

    @property
    def version(self) -> str:
        return "0"

    def log_hyperparams(self, *arguments: Any, **more: Any) -> None:
        """Do nothing: the master knows the hyperparameters, for it chose them."""

    def log_metrics(self, metrics: Mapping[str, Any], step: Optional[int] = None) -> None:
        """Report metrics as training, validation or test, whichever the trainer does."""
        if self._trainer is None:
            # Nobody says what the trainer does: Lightning's own names of validations begin so.
            validates, at = any(name.startswith("val") for name in metrics), step or 0
            (self._session.report_validation if validates else self._session.report_training)(at, metrics)
            return
        stage = self._trainer.state.stage
        group = "training" if stage is None else _GROUPS.get(stage.value)
        at = self._trainer.global_step
        if group is None or not self._session.active:  # the sanity check of a validation is none
            return
        if group == "validation":
            self._session.report_validation(at, {**_counts(self._trainer), **metrics})
        else:
            self._session.report_training(at, metrics, group)

    def finalize(self, status: str) -> None:
        """Close the logger's own connections."""
        if self._trainer is None:
            self._session.close()


def _counts(trainer: Any) -> Dict[str, Any]:
    """Return what searches may count, by Determined's names."""
    return {"batches": trainer.global_step, "epochs": trainer.current_epoch + 1}
