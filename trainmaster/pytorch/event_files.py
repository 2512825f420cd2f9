"""Writes a trial's metrics as event files of TensorBoard, where the image has `tensorboard`."""

from __future__ import annotations

import logging
from typing import Any, Dict, List, Mapping

from trainmaster.pytorch.trial_context import TrialContext

logger = logging.getLogger("trainmaster.pytorch")


def write(
    context: TrialContext, kind: str, step: int, metrics: Mapping[str, Any], batches: List[Dict[str, Any]]
) -> None:
    """Write metrics. The chief calls.

    Args:
        context: The trial's.
        kind: "train" or "val".
        step: Batches since the start of the trial.
        metrics: Name and value; only numbers are written.
        batches: The same of each batch before `step`.
    """
    if not context.get_enable_tensorboard_logging():
        return
    try:
        writer = context.get_tensorboard_writer()
    except ImportError:
        logger.info("metrics are not written for TensorBoard: the image has no tensorboard")
        context.set_enable_tensorboard_logging(False)
        return
    for number, batch in enumerate(batches, step - len(batches)):
        for name, value in batch.items():
            if _is_number(value):
                writer.add_scalar("Determined/" + name, value, number)
    written = {name for batch in batches for name in batch}
    for name, value in metrics.items():
        if name not in written and _is_number(value):
            shown = "val_" + name if kind == "val" and not name.startswith("val") else name
            writer.add_scalar("Determined/" + shown, value, step)
    writer.flush()


def upload(context: TrialContext) -> None:
    """Copy new event files to the checkpoint storage; of other ranks only what is no event file, such as traces."""
    if context.get_enable_tensorboard_logging():
        chief = context.distributed.rank == 0
        context._core.train.upload_tensorboard_files(lambda path: chief or "tfevents" not in path.name)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (hasattr(value, "item") and getattr(value, "size", 0) == 1)
