"""`LRScheduler`: a scheduler of torch, and when it steps."""

from __future__ import annotations

import enum
from typing import Any, Dict, List


class LRScheduler:
    """A learning rate scheduler that the training loop steps.

    Args:
        scheduler: Torch's.
        step_mode: When it steps.
        frequency: Every how many of these times.

    Raises:
        TypeError: `step_mode` is no `LRScheduler.StepMode`.
    """

    class StepMode(enum.Enum):
        """When a scheduler steps: after each epoch, after each batch, after each optimizer step (which differs from
        batches where gradients are aggregated), or when the trial's own code says so."""

        STEP_EVERY_EPOCH = 1
        STEP_EVERY_BATCH = 2
        MANUAL_STEP = 3
        STEP_EVERY_OPTIMIZER_STEP = 4

    def __init__(self, scheduler: Any, step_mode: StepMode, frequency: int = 1) -> None:
        if not isinstance(step_mode, LRScheduler.StepMode):
            raise TypeError("step_mode must be one of LRScheduler.StepMode, not %r" % (step_mode,))
        self._scheduler = scheduler
        self._step_mode = step_mode
        self._frequency = frequency

    def step(self, *arguments: Any, **named: Any) -> None:
        """Step torch's scheduler."""
        self._scheduler.step(*arguments, **named)

    def get_last_lr(self) -> List[float]:
        """Return the current learning rate of each group of parameters."""
        rates: List[float] = self._scheduler.get_last_lr()
        return rates

    def state_dict(self) -> Dict[str, Any]:
        """Return the state of torch's scheduler."""
        state: Dict[str, Any] = self._scheduler.state_dict()
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Set the state of torch's scheduler."""
        self._scheduler.load_state_dict(state_dict)

    def step_after(self, batch_idx: int, aggregation_frequency: int, epoch_len: int) -> None:
        """Step as often as is due after an optimizer step.

        Args:
            batch_idx: The batch after which the optimizer stepped, counted from 0.
            aggregation_frequency: Batches in an optimizer step.
            epoch_len: Batches in an epoch.
        """
        mode = self._step_mode
        if mode is LRScheduler.StepMode.STEP_EVERY_BATCH:
            passed = range(batch_idx - aggregation_frequency + 2, batch_idx + 2)
        elif mode is LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP:
            passed = range(batch_idx + 1, batch_idx + 2)
        elif mode is LRScheduler.StepMode.STEP_EVERY_EPOCH:
            # Those epochs that end before the next optimizer step.
            passed = range(batch_idx // epoch_len + 1, (batch_idx + aggregation_frequency) // epoch_len + 1)
        else:
            return
        for number in passed:
            if number % self._frequency == 0:
                self.step()
