"""SearcherContext: how long to train, in the style of Determined before 0.38 and after."""

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
    """Who asks for operations."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHEIF_ONLY"  # spelt as in Determined, whose users may have stored it


class Unit(enum.Enum):
    """What a training length counts."""

    EPOCHS = "EPOCHS"
    RECORDS = "RECORDS"
    BATCHES = "BATCHES"


class SearcherOperation:
    """Train until `length`, then call `report_completed`."""

    def __init__(self, length: int, reports: Optional[Reports], is_chief: bool) -> None:
        self._length = length
        self._reports = reports
        self._is_chief = is_chief
        self._completed = False

    @property
    def length(self) -> int:
        """Train until this many units have been done since the start of the trial."""
        return self._length

    @property
    def completed(self) -> bool:
        return self._completed

    def report_progress(self, length: float) -> None:
        """Tell how many units are done. Chief only. Raises RuntimeError otherwise, ValueError for no
        number."""
        self._chief_only("report_progress")
        if self._completed:
            raise RuntimeError("report_progress() was called after report_completed()")
        done = float(length)
        if math.isnan(done) or done < 0:
            raise ValueError("progress must be a number of units, not %r" % (length,))
        if self._reports is not None:
            self._reports.add("progress", progress=min(1.0, done / self._length) if self._length else 1.0)

    def report_completed(self, searcher_metric: Any) -> None:
        """Say that the operation is done. Chief only.

        The metric is taken from the validation reports, as in Determined 0.38; this one is only checked.
        Raises RuntimeError, ValueError.
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
        """One operation, or none when the training is asked to leave already.

        In mode WorkersAskChief every rank must call. `auto_ack` is kept for compatibility. Raises ValueError
        when the experiment gives no length, RuntimeError when the loop goes on without `report_completed`.
        """
        del auto_ack
        is_chief = self._distributed.rank == 0
        if searcher_mode is SearcherMode.ChiefOnly and not is_chief:
            raise RuntimeError("operations() was called by a worker, but the searcher mode is ChiefOnly")
        # On every rank: the chief must not fail alone while the others wait for its word.
        length = self._length()
        # An early look, so that a training that must leave does not begin; it counts as heard.
        leave = is_chief and self._preempt.look_now()
        if searcher_mode is SearcherMode.WorkersAskChief:
            leave = self._distributed.broadcast(leave)
        if leave:
            return
        operation = SearcherOperation(length, self._reports, is_chief)
        yield operation
        if is_chief and not operation.completed:
            raise RuntimeError("the operation's report_completed() was not called before the next operation")

    def acknowledge_out_of_ops(self) -> None:
        """Kept for compatibility: there is nothing to tell the master."""

    def get_configured_units(self) -> Optional[Unit]:
        """What `length` counts; None when the experiment does not say."""
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
