"""SearcherContext: how long to train, with the operations of Determined before release 0.38."""

from __future__ import annotations

import enum
import logging
import math
from typing import Any, Iterator, Mapping, Optional

from trainmaster.core.distributed import DistributedContext
from trainmaster.core.preempt import PreemptContext
from trainmaster.core.reports import Reports

logger = logging.getLogger("trainmaster.core")


class SearcherMode(enum.Enum):
    """Which ranks call `operations`."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHEIF_ONLY"  # spelt as in Determined, whose users may have stored it


class Unit(enum.Enum):
    """What a training length counts."""

    EPOCHS = "EPOCHS"
    RECORDS = "RECORDS"
    BATCHES = "BATCHES"


class SearcherOperation:
    """One piece of work: train until `length`, then call `report_completed`."""

    def __init__(self, length: int, reports: Optional[Reports], is_chief: bool) -> None:
        self._length = length
        self._reports = reports
        self._is_chief = is_chief
        self._completed = False

    @property
    def length(self) -> int:
        """How far to train, counted in units from the start of the trial."""
        return self._length

    @property
    def completed(self) -> bool:
        """Whether `report_completed` was called."""
        return self._completed

    def report_progress(self, length: float) -> None:
        """Report how much of the operation is done. For the chief only.

        Args:
            length: Units done since the start of the trial.

        Raises:
            RuntimeError: Another rank than the chief called, or the operation is complete.
            ValueError: `length` is negative or NaN.
        """
        self._chief_only("report_progress")
        if self._completed:
            raise RuntimeError("report_progress() was called after report_completed()")
        done = float(length)
        if math.isnan(done) or done < 0:
            raise ValueError("progress must be a number of units, not %r" % (length,))
        if self._reports is not None:
            self._reports.add("progress", progress=min(1.0, done / self._length) if self._length else 1.0)

    def report_completed(self, searcher_metric: Any) -> None:
        """Complete the operation. For the chief only.

        Args:
            searcher_metric: The searcher's metric, a number. It is only checked: the searcher takes it from the
                validation reports, as in Determined 0.38.

        Raises:
            RuntimeError: Another rank than the chief called, or the operation is complete.
            ValueError: `searcher_metric` is no number.
        """
        self._chief_only("report_completed")
        if self._completed:
            raise RuntimeError("report_completed() was called twice for one operation")
        if isinstance(searcher_metric, Mapping):
            raise ValueError("report_completed() wants the searcher's metric alone, not a dict")
        try:
            if math.isnan(float(searcher_metric)):
                logger.warning("the searcher's metric is NaN")
        except (TypeError, ValueError):
            raise ValueError("the searcher's metric must be a number, not %r" % (searcher_metric,)) from None
        self._completed = True

    def _chief_only(self, name: str) -> None:
        if not self._is_chief:
            raise RuntimeError("%s() may be called by the chief only" % name)


class SearcherContext:
    """Yields the one operation of a trial: train until the searcher's `max_length`, or `max_time`."""

    def __init__(
        self,
        config: Mapping[str, Any],
        distributed: DistributedContext,
        preempt: PreemptContext,
        reports: Optional[Reports] = None,
    ) -> None:
        """`config` is the experiment's `searcher` section."""
        self._config = config
        self._distributed = distributed
        self._preempt = preempt
        self._reports = reports

    def operations(
        self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> Iterator[SearcherOperation]:
        """Yield one operation, or none when the training is already asked to leave.

        Args:
            searcher_mode: With WorkersAskChief every rank must call, with ChiefOnly the chief alone.
            auto_ack: Accepted for compatibility with Determined; without effect.

        Yields:
            The operation.

        Raises:
            ValueError: The experiment's searcher has no length.
            RuntimeError: The loop went on without `report_completed`, or a rank other than the chief called in mode
                ChiefOnly.
        """
        del auto_ack
        is_chief = self._distributed.rank == 0
        if searcher_mode is SearcherMode.ChiefOnly and not is_chief:
            raise RuntimeError("operations() was called by a worker, but the searcher mode is ChiefOnly")
        # On every rank: the chief must not fail alone while the others wait for its word.
        length = self._length()
        # An early check, so that a training that must leave does not begin; it counts as acknowledged.
        leave = is_chief and self._preempt.check_this_rank()
        if searcher_mode is SearcherMode.WorkersAskChief:
            leave = self._distributed.broadcast(leave)
        if leave:
            return
        operation = SearcherOperation(length, self._reports, is_chief)
        yield operation
        if is_chief and not operation.completed:
            raise RuntimeError("the operation's report_completed() was not called before the next operation")

    def acknowledge_out_of_ops(self) -> None:
        """Do nothing. Kept for callers of Determined's class."""

    def get_configured_units(self) -> Optional[Unit]:
        """Read what `length` counts.

        Returns:
            The unit; None when the experiment does not say.
        """
        word = _units(self._config)
        return None if word is None else Unit.__members__.get(word.upper())

    def _length(self) -> int:
        for key in ("max_length", "max_time"):
            value = self._config.get(key)
            if isinstance(value, Mapping):
                value = next(iter(value.values()), None)
            if value is not None:
                return int(value)
        raise ValueError(
            "the experiment's searcher has neither max_length nor max_time: set one, or do not use "
            "searcher.operations()"
        )


def _units(config: Mapping[str, Any]) -> Optional[str]:
    length = config.get("max_length")
    if isinstance(length, Mapping) and length:
        return str(next(iter(length)))
    metric = config.get("time_metric")
    return str(metric) if metric else None
